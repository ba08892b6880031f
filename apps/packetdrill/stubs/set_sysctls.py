#!/bin/sh
# Stands for the program of the same name in a collection: logs the settings instead of making them, and leaves the script that the collection runs to
# restore them, which has nothing to do.
for argument in "$@"; do
    case "$argument" in
        *=*) [ -z "$SOCKEYE_SYSCTL_LOG" ] || printf '%s\n' "$argument" >> "$SOCKEYE_SYSCTL_LOG" ;;
    esac
done
restore="/tmp/sysctl_restore_${PACKETDRILL_PID:-$PPID}.sh"
printf '#!/bin/sh\nrm -f "$0"\n' > "$restore"
chmod u+x "$restore"
