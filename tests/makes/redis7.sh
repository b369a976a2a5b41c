#!/usr/bin/env bash
# Puts the distribution's own Redis 7 (or newer) into the folder $1, for tests only, without installing it or being
# root. Where there is no apt, or it offers none, it says so and ends well: the tests then skip what needs it.
set -euo pipefail
folder=$(realpath -m "$1")
packages=(redis-tools redis-server libjemalloc2 liblzf1 libatomic1)

give_up() {
  echo "no Redis 7 for tests: $1"
  exit 0
}

command -v apt-get > /dev/null && command -v dpkg > /dev/null || give_up "this machine has no apt"
apt-cache show "${packages[@]}" > /dev/null 2>&1 || apt-get update -qq > /dev/null 2>&1 || true
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
(cd "$unpacked" && apt-get download -qq "${packages[@]}" > /dev/null 2>&1) || give_up "apt cannot fetch it"
for package in "$unpacked"/*.deb; do
  dpkg -x "$package" "$unpacked/root" || give_up "dpkg cannot unpack it"
done
mkdir -p "$folder"
rm -rf "$folder/root"
mv "$unpacked/root" "$folder/root"
cat > "$folder/redis-server" << 'END'
#!/bin/sh
here=$(dirname "$0")
LD_LIBRARY_PATH=$(echo "$here"/root/usr/lib/*-linux-gnu*) exec "$here/root/usr/bin/redis-server" "$@"
END
chmod +x "$folder/redis-server"
# A wall clock that tests can move under a server.
(cd "$unpacked" && apt-get download -qq libfaketime > /dev/null 2>&1 && dpkg -x libfaketime*.deb "$folder/root") \
  || echo "no libfaketime for tests: apt cannot fetch it"
"$folder/redis-server" --version || { rm "$folder/redis-server"; give_up "it does not run here"; }
