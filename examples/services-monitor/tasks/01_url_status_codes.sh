#!/bin/sh
# Which status the service's address answers with.
read -r _ _ _ address
code=$(curl --silent --output /dev/null --max-time 30 --write-out '%{http_code}' "$address") || {
    echo "error no answer"
    exit 0
}
case "$code" in
2??) echo "ok $code" ;;
3??) echo "warning $code" ;;
*) echo "error $code" ;;
esac
