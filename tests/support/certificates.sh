# Certificates for tests: sh certificates.sh DIRECTORY. authority.crt has signed server.crt, for localhost alone, and client.crt,
# for the role "certified"; other.crt is an authority that has signed nothing.
set -e
cd "$1"
new="openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
exec 2>openssl.log
for name in authority other; do
    $new -keyout $name.key -out $name.crt -subj "/CN=$name"
done
signed="$new -CA authority.crt -CAkey authority.key -addext basicConstraints=critical,CA:FALSE"
$signed -keyout server.key -out server.crt -subj /CN=server -addext subjectAltName=DNS:localhost
$signed -keyout client.key -out client.crt -subj /CN=certified
chmod 600 ./*.key
