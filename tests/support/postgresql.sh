# A PostgreSQL server for tests: sh postgresql.sh DIRECTORY. It says "started", and goes when its input ends, as it does when the
# process that started it is gone. The directory is its own, and is removed. No file is brought to the disk.
set -e
directory=$1
# The server refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    chown postgres: "$directory" || { echo "the package postgresql makes the user" >&2; exit 1; }
    exec setpriv --reuid=postgres --regid=postgres --clear-groups sh "$0" "$directory"
fi
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
"$programs/initdb" -D "$directory/data" -U forkyard -A trust --no-sync -E UTF8 --no-locale >/dev/null
"$programs/postgres" -D "$directory/data" -k "$directory" -h '' -c fsync=off -c shared_buffers=16MB \
    -c max_connections=60 >"$directory/log" 2>&1 &
server=$!
echo started
cat >/dev/null
kill -INT "$server" 2>/dev/null || true
wait "$server" || true
rm -rf "$directory"/*
