#!/usr/bin/env bash
# Mounts a tracefs from a fresh clone.
#
#   ./mount.sh [MOUNTPOINT] [OPTION...]    mount, on ./tracing unless told otherwise
#   ./mount.sh --unmount [MOUNTPOINT]      unmount it and end its daemon
#   ./mount.sh --prepare                   only make what a mount needs
#   ./mount.sh --help
#
# What it needs, it makes: a virtual environment (.venv, beside this script) with the Python
# packages, and libfuse 2 and fusermount by apt-get where that may be done; otherwise it prints the
# command to type. OPTION is one of `ftracefs mount`:
#
#   --kernel IMAGE    builtin; linux, the running host's or else Debian's; a vmlinuz; an ELF file
#   --module FILE     an object file, a module of one's own for that kernel
#   --cpus N          number of vCPUs, 1 to 8
#   --clock CLOCK     real or virtual
#   --isolated        nothing of the host shows in the trace
#   --pure            leave out the directory emulator/
#   --foreground      stay; Ctrl-C unmounts
#   --log FILE        append the log to FILE
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$root/.venv
python=$venv/bin/python
stamp=$venv/ftracefs-stamp

say() { printf 'mount.sh: %s\n' "$*" >&2; }

help() { sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"; }

usage() {
    say "$*"
    say "try: $0 --help"
    exit 2
}

# The command that installs system packages, in $apt; fails where that may not be done.
may_install() {
    command -v apt-get >/dev/null || return 1
    apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
    [ "$(id -u)" != 0 ] || return 0
    sudo -n true 2>/dev/null || return 1
    apt=(sudo "${apt[@]}")
}

install_packages() { # PACKAGE...
    if ! may_install; then
        say "missing: $*; type this and try again:"
        if command -v apt-get >/dev/null; then
            say "    sudo apt-get install $*"
        else
            say "    (by your package manager, under its names for these packages)"
        fi
        return 1
    fi
    say "installing $*"
    local quiet=(-y -qq --no-install-recommends)
    # The package lists of a fresh container are empty, those of a desktop are not.
    "${apt[@]}" install "${quiet[@]}" "$@" </dev/null >/dev/null 2>&1 ||
        { "${apt[@]}" update -qq </dev/null && "${apt[@]}" install "${quiet[@]}" "$@" </dev/null >&2; }
}

has_libfuse() {
    [ -z "${FUSE_LIBRARY_PATH:-}" ] || return 0
    local found
    found=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) || found=
    [[ $found == *libfuse.so.2* ]] || compgen -G '/usr/lib*/libfuse.so.2' >/dev/null
}

prepare_system() {
    local missing=()
    has_libfuse || missing+=(libfuse2)
    command -v fusermount >/dev/null || missing+=(fuse3)
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

# The shell and the tools of a guest that is a Linux; it boots without them.
prepare_guest() { # KERNEL
    case $1 in
    linux | *vmlinu[xz]*) ;;
    *) return 0 ;;
    esac
    local file
    for file in /bin/busybox /usr/bin/busybox /usr/bin/busybox.static; do
        [ ! -x "$file" ] || ! "$file" true 2>/dev/null || return 0
    done
    install_packages busybox-static || say "the guest will have few tools"
}

is_new_enough() { # PYTHON
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

base_python() {
    local candidate
    for candidate in ${FTRACEFS_PYTHON:+"$FTRACEFS_PYTHON"} python3 python3.{14,13,12,11}; do
        if is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# What the environment was made from: another place or another list of packages makes it stale.
fingerprint() {
    printf '%s\n' "$root"
    cat "$root/pyproject.toml"
}

prepare_python() {
    if [ -x "$python" ] && cmp -s "$stamp" <(fingerprint); then
        return
    fi
    local base
    if ! base=$(base_python); then
        say "Python 3.11 or newer is needed; FTRACEFS_PYTHON may name one"
        return 1
    fi
    say "installing the Python packages into $venv (once)"
    if ! [ -x "$python" ] || ! is_new_enough "$python" || ! "$python" -m pip --version >/dev/null 2>&1 ||
        [ "$(head -n 1 "$stamp" 2>/dev/null)" != "$root" ]; then
        "$base" -c 'import ensurepip' 2>/dev/null || install_packages python3-venv || return 1
        "$base" -m venv --clear "$venv" || return 1
    fi
    rm -f "$stamp"
    "$python" -m pip install --quiet --disable-pip-version-check --editable "${root}[linux]" || return 1
    fingerprint >"$stamp"
}

action=mount
mountpoint=
kernel=builtin
options=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        help
        exit 0
        ;;
    --unmount | --prepare)
        [ "$action" = mount ] || usage "$1 and --$action exclude each other"
        action=${1#--}
        ;;
    --kernel | --module | --cpus | --clock | --log)
        [ $# -gt 1 ] || usage "$1 needs a value"
        [ "$1" != --kernel ] || kernel=$2
        options+=("$1" "$2")
        shift
        ;;
    --kernel=*)
        kernel=${1#*=}
        options+=("$1")
        ;;
    --module=* | --cpus=* | --clock=* | --log=* | --isolated | --pure | --foreground | --until-eof)
        options+=("$1")
        ;;
    -*) usage "no option $1" ;;
    "") usage "an empty mount point" ;;
    *)
        [ -z "$mountpoint" ] || usage "more than one mount point: $mountpoint, $1"
        mountpoint=$1
        ;;
    esac
    shift
done
[ "$action" = mount ] || [ ${#options[@]} = 0 ] || usage "--$action takes no ${options[0]}"
mountpoint=${mountpoint:-tracing}

case $action in
prepare)
    prepare_python
    prepare_system || true
    ;;
unmount)
    if [ -x "$python" ]; then
        exec "$python" -P -m ftracefs unmount "$mountpoint"
    fi
    exec fusermount -u "$mountpoint"
    ;;
mount)
    prepare_python
    prepare_system
    prepare_guest "$kernel"
    export FTRACEFS_UNMOUNT_COMMAND="$0 --unmount" FTRACEFS_HELP_COMMAND="$0 --help"
    exec "$python" -P -m ftracefs mount --mkdir "$mountpoint" ${options[@]+"${options[@]}"}
    ;;
esac
