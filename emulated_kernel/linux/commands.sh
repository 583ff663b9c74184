#!/bin/sh
# In the guest: runs the commands that come on standard input, one a line, newlines in it as \n. In front
# of each stands a mark that no command can know: behind what it has written come RS, the mark, its
# exit status, newline. Control-C ends this shell with what it runs; init starts the next one.
exec 3>&1
cd /root || cd /
printf '\036ready %d\n' 0
while read -r mark command; do
    trap 'printf "\036exit %d\n" $? >&3' EXIT
    eval "$(printf %b "$command")" </dev/null >&3 2>&1
    printf '\036%s %d\n' "$mark" $? >&3
    trap - INT QUIT
done
