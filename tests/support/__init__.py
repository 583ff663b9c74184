"""What tests share: driving files by exact system calls, mounts that always end."""
