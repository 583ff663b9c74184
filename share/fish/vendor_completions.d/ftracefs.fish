# Completion of ftracefs for fish; made by `python -m tools.command_line`.

function __ftracefs_mounts
    # A blank is \040 there.
    sed -n 's/^\([^ ]* \)\{4\}\([^ ]*\) .* - fuse\.tracefs ftracefs .*/\2/p' \
        /proc/self/mountinfo 2>/dev/null | string replace -a '\\' '\\0' | while read -l name
        printf '%b\n' $name
    end
end

complete -c ftracefs -f
complete -c ftracefs -n __fish_use_subcommand -s h -l help -d 'show this help message and exit'
complete -c ftracefs -n __fish_use_subcommand -l version -d 'show program\'s version number and exit'
complete -c ftracefs -n __fish_use_subcommand -a mount -d 'mount a tracefs on an empty directory'
complete -c ftracefs -n __fish_use_subcommand -a run -d 'run a command that finds a tracefs at /sys/kernel/tracing'
complete -c ftracefs -n __fish_use_subcommand -a unmount -d 'unmount it and end its daemon'
complete -c ftracefs -n __fish_use_subcommand -a reset -d 'put every file back to what it was after the mount'
complete -c ftracefs -n __fish_use_subcommand -a check -d 'say what this host lacks'

complete -c ftracefs -n '__fish_seen_subcommand_from mount' -s h -l help -d 'show this help message and exit'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l kernel -r -F -a builtin -d 'the kernel behind the files: builtin; linux, the running host\'s or else Debian\'s; a vmlinuz; or an ELF file of one\'s own (docs/examples/elf_kernel)'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l module -r -F -d 'load a module of one\'s own into that kernel, an object file; may be given repeatedly'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l cpus -x -a '1 2 3 4 5 6 7 8' -d 'number of vCPUs, 1 to 8 (default 2; 1 for a Linux)'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l clock -x -a 'real virtual' -d 'real follows the host\'s time; virtual steps evenly, the same in every run'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l isolated -d 'nothing of the host shows in the trace: one fixed task, no workload'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l pure -d 'leave out the directory emulator/'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l log -r -F -d 'append the log to FILE'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l mkdir -d 'make MOUNTPOINT if it is missing'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l foreground -d 'stay; Ctrl-C unmounts'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -l until-eof -d 'unmount at the end of standard input, which comes when a test that made a pipe of it ends in whatever way; implies --foreground'
complete -c ftracefs -n '__fish_seen_subcommand_from mount' -x -a '(__fish_complete_directories)'

complete -c ftracefs -n '__fish_seen_subcommand_from run' -s h -l help -d 'show this help message and exit'
complete -c ftracefs -n '__fish_seen_subcommand_from run' -l kernel -r -F -a builtin -d 'the kernel behind the files: builtin; linux, the running host\'s or else Debian\'s; a vmlinuz; or an ELF file of one\'s own (docs/examples/elf_kernel)'
complete -c ftracefs -n '__fish_seen_subcommand_from run' -l module -r -F -d 'load a module of one\'s own into that kernel, an object file; may be given repeatedly'
complete -c ftracefs -n '__fish_seen_subcommand_from run' -l cpus -x -a '1 2 3 4 5 6 7 8' -d 'number of vCPUs, 1 to 8 (default 2; 1 for a Linux)'
complete -c ftracefs -n '__fish_seen_subcommand_from run' -l clock -x -a 'real virtual' -d 'real follows the host\'s time; virtual steps evenly, the same in every run'
complete -c ftracefs -n '__fish_seen_subcommand_from run' -l isolated -d 'nothing of the host shows in the trace: one fixed task, no workload'
complete -c ftracefs -n '__fish_seen_subcommand_from run' -l pure -d 'leave out the directory emulator/'
complete -c ftracefs -n '__fish_seen_subcommand_from run' -l log -r -F -d 'append the log to FILE'
complete -c ftracefs -n '__fish_seen_subcommand_from run' -x -a '(__fish_complete_subcommand --fcs-skip=2 -- --kernel --module --cpus --clock --log)'

complete -c ftracefs -n '__fish_seen_subcommand_from unmount' -s h -l help -d 'show this help message and exit'
complete -c ftracefs -n '__fish_seen_subcommand_from unmount' -x -a '(__ftracefs_mounts; __fish_complete_directories)'

complete -c ftracefs -n '__fish_seen_subcommand_from reset' -s h -l help -d 'show this help message and exit'
complete -c ftracefs -n '__fish_seen_subcommand_from reset' -x -a '(__ftracefs_mounts; __fish_complete_directories)'

complete -c ftracefs -n '__fish_seen_subcommand_from check' -s h -l help -d 'show this help message and exit'
