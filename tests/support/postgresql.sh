# A PostgreSQL server for tests: sh postgresql.sh DIRECTORY [PORT]. It says "started", and goes when its input ends, as it does when
# the process that started it is gone. The directory is its own, and is removed. No file is brought to the disk.
# With a port it listens on 127.0.0.1, too; with server.crt and server.key in the directory it has TLS, and trusts clients that
# authority.crt has signed. The role "forkyard" connects as it likes, "sealed" by TLS alone, "open" without alone, and
# "certified" with its certificate.
set -e
directory=$1
port=$2
# The server refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    chown -R postgres: "$directory" || { echo "the package postgresql makes the user" >&2; exit 1; }
    exec setpriv --reuid=postgres --regid=postgres --clear-groups sh "$0" "$directory" "$port"
fi
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
"$programs/initdb" -D "$directory/data" -U forkyard -A trust --no-sync -E UTF8 --no-locale >/dev/null
set --
if [ -n "$port" ]; then
    set -- -h 127.0.0.1 -p "$port"
    cat >"$directory/data/pg_hba.conf" <<'END'
local     all all                    trust
hostssl   all certified 127.0.0.1/32 cert
host      all certified 127.0.0.1/32 reject
hostnossl all sealed    127.0.0.1/32 reject
hostssl   all open      127.0.0.1/32 reject
host      all all       127.0.0.1/32 trust
END
    if [ -e "$directory/server.crt" ]; then
        set -- "$@" -c ssl=on -c ssl_cert_file="$directory/server.crt" -c ssl_key_file="$directory/server.key" \
            -c ssl_ca_file="$directory/authority.crt"
    else
        sed -i s/^hostssl.*// "$directory/data/pg_hba.conf"
    fi
else
    set -- -h ''
fi
"$programs/postgres" -D "$directory/data" -k "$directory" "$@" -c fsync=off -c shared_buffers=16MB \
    -c max_connections=60 >"$directory/log" 2>&1 &
server=$!
echo started
cat >/dev/null
kill -INT "$server" 2>/dev/null || true
wait "$server" || true
rm -rf "$directory"/*
