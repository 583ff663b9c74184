# mke2fs: an empty file system with its journal, written to the disk word by word. What is laid out here is
# what the numbers of ext4.inc say.

.text

FUNC_NOTRACE ext4_mkfs
    ENTER1
    sub rsp, 24
    mov rbx, [rip + vda1]
    mov rcx, offset vda1_words
    mov rdx, offset vda1_words_end
.Lword:
    mov eax, [rcx]
    mov esi, [rcx + 4]
    mov [rbx + rax], esi
    add rcx, 8
    cmp rcx, rdx
    jb .Lword
    lea rdi, [rbx + BLOCK_BITMAP_BLOCK * PAGE_BYTES + NR_BLOCKS / 8]    # what is beyond the end is taken
    mov ecx, PAGE_BYTES - NR_BLOCKS / 8
    mov eax, 0xff
    rep stosb
    lea rdi, [rbx + INODE_BITMAP_BLOCK * PAGE_BYTES + NR_INODES / 8]
    mov ecx, PAGE_BYTES - NR_INODES / 8
    rep stosb
    mov rdi, rsp
    call ktime_get_coarse_real_ts64
    mov eax, [rsp]
    mov rcx, offset vda1_times
    mov rdx, offset vda1_times_end
.Ltime:
    mov esi, [rcx]
    mov [rbx + rsi], eax
    add rcx, 4
    cmp rcx, rdx
    jb .Ltime
    LEAVE1
ENDFUNC ext4_mkfs

.data
# The disk's first blocks as 32-bit words: where, and what.
.balign 8
vda1_words:
    .long SUPER_OFFSET, NR_INODES
    .long SUPER_OFFSET + 4, NR_BLOCKS
    .long SUPER_OFFSET + 8, EXT4_ROOT_BLOCKS
    .long EXT4_FREE_BLOCKS_COUNT, NR_BLOCKS - FIRST_FREE_BLOCK
    .long EXT4_FREE_INODES_COUNT, NR_INODES - FIRST_INO
    .long SUPER_OFFSET + 24, 2          # blocks and clusters of 1 KiB << 2
    .long SUPER_OFFSET + 28, 2
    .long SUPER_OFFSET + 32, 8 * PAGE_BYTES         # of a group
    .long SUPER_OFFSET + 36, 8 * PAGE_BYTES
    .long SUPER_OFFSET + 40, NR_INODES
    .long SUPER_OFFSET + 52, 0xffff0001             # mounted once, no limit
    .long SUPER_OFFSET + 56, EXT4_MAGIC + 0x10000   # valid
    .long SUPER_OFFSET + 60, 1          # after an error go on
    .long SUPER_OFFSET + 76, 1          # revision
    .long SUPER_OFFSET + 84, FIRST_INO
    .long SUPER_OFFSET + 88, INODE_DISK_SIZE
    .long SUPER_OFFSET + 92, 4          # has_journal
    .long SUPER_OFFSET + 96, 0x46       # filetype, needs_recovery, extents
    .long SUPER_OFFSET + 104, 0x9f6e8d5c            # uuid
    .long SUPER_OFFSET + 108, 0x4b3a7261
    .long SUPER_OFFSET + 112, 0x1c2d9a81
    .long SUPER_OFFSET + 116, 0x314f50e6
    .long SUPER_OFFSET + 120, 0x31616476            # volume: vda1
    .long SUPER_OFFSET + 224, 8         # inode of the journal
    .long GROUP_DESC_BLOCK * PAGE_BYTES, BLOCK_BITMAP_BLOCK
    .long GROUP_DESC_BLOCK * PAGE_BYTES + 4, INODE_BITMAP_BLOCK
    .long GROUP_DESC_BLOCK * PAGE_BYTES + 8, INODE_TABLE_BLOCK
    .long GROUP_DESC_BLOCK * PAGE_BYTES + 12, ((NR_INODES - FIRST_INO) << 16) + NR_BLOCKS - FIRST_FREE_BLOCK
    .long GROUP_DESC_BLOCK * PAGE_BYTES + 16, 2     # directories
    .long BLOCK_BITMAP_BLOCK * PAGE_BYTES, 0xffffffff
    .long BLOCK_BITMAP_BLOCK * PAGE_BYTES + 4, 0xffffffff
    .long BLOCK_BITMAP_BLOCK * PAGE_BYTES + 8, 0xff
    .long INODE_BITMAP_BLOCK * PAGE_BYTES, 0x7ff
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 128, 0x41ed          # the root: a directory, 0755
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 132, PAGE_BYTES
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 152, 0x30000
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 156, 8
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 160, EXT4_EXTENTS_FL
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 168, EXT_MAGIC + 0x10000
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 172, EXT_ROOT_MAX
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 184, 1
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 188, ROOT_BLOCK
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 896, 0x8180          # the journal: a file, 0600
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 900, JOURNAL_BLOCKS * PAGE_BYTES
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 920, 0x10000
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 924, JOURNAL_BLOCKS * 8
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 928, EXT4_EXTENTS_FL
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 936, EXT_MAGIC + 0x10000
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 940, EXT_ROOT_MAX
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 952, JOURNAL_BLOCKS
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 956, JOURNAL_BLOCK
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1280, 0x41c0         # lost+found: a directory, 0700
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1284, PAGE_BYTES
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1304, 0x20000
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1308, 8
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1312, EXT4_EXTENTS_FL
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1320, EXT_MAGIC + 0x10000
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1324, EXT_ROOT_MAX
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1336, 1
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1340, LOST_FOUND_BLOCK
    .long ROOT_BLOCK * PAGE_BYTES, ROOT_INO                     # .
    .long ROOT_BLOCK * PAGE_BYTES + 4, 0x0201000c
    .long ROOT_BLOCK * PAGE_BYTES + 8, 0x2e
    .long ROOT_BLOCK * PAGE_BYTES + 12, ROOT_INO                # ..
    .long ROOT_BLOCK * PAGE_BYTES + 16, 0x0202000c
    .long ROOT_BLOCK * PAGE_BYTES + 20, 0x2e2e
    .long ROOT_BLOCK * PAGE_BYTES + 24, FIRST_INO
    .long ROOT_BLOCK * PAGE_BYTES + 28, 0x020a0fe8
    .long ROOT_BLOCK * PAGE_BYTES + 32, 0x74736f6c              # lost
    .long ROOT_BLOCK * PAGE_BYTES + 36, 0x756f662b              # +fou
    .long ROOT_BLOCK * PAGE_BYTES + 40, 0x646e                  # nd
    .long LOST_FOUND_BLOCK * PAGE_BYTES, FIRST_INO
    .long LOST_FOUND_BLOCK * PAGE_BYTES + 4, 0x0201000c
    .long LOST_FOUND_BLOCK * PAGE_BYTES + 8, 0x2e
    .long LOST_FOUND_BLOCK * PAGE_BYTES + 12, ROOT_INO
    .long LOST_FOUND_BLOCK * PAGE_BYTES + 16, 0x02020ff4
    .long LOST_FOUND_BLOCK * PAGE_BYTES + 20, 0x2e2e
    .long JOURNAL_BLOCK * PAGE_BYTES, 0x98393bc0                # big endian from here on
    .long JOURNAL_BLOCK * PAGE_BYTES + 4, JBD2_SUPERBLOCK_V2 << 24
    .long JOURNAL_BLOCK * PAGE_BYTES + 12, 0x100000             # 4096
    .long JOURNAL_BLOCK * PAGE_BYTES + 16, JOURNAL_BLOCKS << 24
    .long JOURNAL_BLOCK * PAGE_BYTES + 20, 1 << 24              # the first block of the log
    .long JOURNAL_BLOCK * PAGE_BYTES + 24, 1 << 24              # the first transaction
    .long JOURNAL_BLOCK * PAGE_BYTES + 28, 1 << 24              # where it is
    .long JOURNAL_BLOCK * PAGE_BYTES + 48, 0x9f6e8d5c           # uuid
    .long JOURNAL_BLOCK * PAGE_BYTES + 52, 0x4b3a7261
    .long JOURNAL_BLOCK * PAGE_BYTES + 56, 0x1c2d9a81
    .long JOURNAL_BLOCK * PAGE_BYTES + 60, 0x314f50e6
    .long JOURNAL_BLOCK * PAGE_BYTES + 64, 1 << 24              # used by one
vda1_words_end:
vda1_times:
    .long SUPER_OFFSET + 44, SUPER_OFFSET + 48, SUPER_OFFSET + 64, SUPER_OFFSET + 264
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 136, INODE_TABLE_BLOCK * PAGE_BYTES + 140
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 144, INODE_TABLE_BLOCK * PAGE_BYTES + 904
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 908, INODE_TABLE_BLOCK * PAGE_BYTES + 912
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1288, INODE_TABLE_BLOCK * PAGE_BYTES + 1292
    .long INODE_TABLE_BLOCK * PAGE_BYTES + 1296
vda1_times_end:
