#!/bin/sh
# https://curl.se/docs/manpage.html#--retry
for name in first second; do
	answer=$(curl --silent --show-error --fail --retry 5 --include --json "{\"name\": \"$name\"}" "$FORGERUN_URL/jobs") || { failed=1; continue; }
	location=$(printf '%s' "$answer" | tr -d '\r' | sed -n 's/^location: //Ip' | tail -n 1)
	while :; do
		sleep 1
		answer=$(curl --silent --show-error --fail --retry 5 "$location") || { failed=1; break; }
		case $answer in *succeeded*) echo "$name succeeded" && break ;; esac
	done
done
exit "${failed:-0}"
