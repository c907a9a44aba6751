#!/bin/busybox sh
# The guest's only program besides the kernel: brings the card up and does the task named on the
# kernel's command line. Lines that begin with "guest:" are read by the test.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec >/dev/console 2>&1 </dev/console
while read -r module; do insmod "$module"; done </modules
option() { tr ' ' '\n' </proc/cmdline | sed -n "s/^vm.$1=//p"; }

ip link set lo up
tries=0
while [ ! -e /sys/class/net/eth0 ] && [ $tries -lt 100 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
ip addr add "$(option address)" dev eth0
ip link set eth0 up
echo "guest: up $(cut -d' ' -f1 /proc/uptime) s, features $(cat /sys/class/net/eth0/device/features)"

set -- $(option task | tr ':' ' ')
case $1 in
serve)
  head -c "$2" /dev/urandom >/tmp/file
  echo "guest: sha256 $(sha256sum </tmp/file | cut -d' ' -f1)"
  nc -l -p 5000 </tmp/file
  echo "guest: served $(cat /sys/class/net/eth0/statistics/tx_bytes) bytes"
  # Its last acknowledgements and the other guest's pings are still to be answered.
  sleep 600
  ;;
fetch)
  # The first pings resolve the address and wait for the other guest; they do not count.
  tries=0
  until ping -c 1 -W 1 "$2" >/dev/null 2>&1 || [ $tries -ge 120 ]; do tries=$((tries + 1)); done
  # Slowly: ping's socket holds a dozen replies, and a guest that is kept from running gets them in heaps.
  echo "guest: ping $(ping -c "$3" -i 0.1 "$2" | grep 'packets transmitted')"
  # nc keeps the console as its input: at its end it would close its half, and busybox's nc on the
  # other side takes that for the end of everything.
  tries=0
  until nc "$2" 5000 >/tmp/file && [ -s /tmp/file ] || [ $tries -ge 60 ]; do
    sleep 0.5
    tries=$((tries + 1))
  done
  echo "guest: sha256 $(sha256sum </tmp/file | cut -d' ' -f1)"
  echo "guest: fetched $(wc -c </tmp/file) bytes"
  ;;
esac
echo "guest: done 0"
poweroff -f
