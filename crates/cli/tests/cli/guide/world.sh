# The world in which the examples of a guide are run: two hosts on one wire, a device, a folder to copy into, a program
# that takes containers. It is run in namespaces of its own (mounts, network), with which all of it goes.
#
# In the environment: BYWASH (the command), DEVICE (a block device), THERE and HERE (what is run at which host).
set -eu
mkdir -p bin dev there
ln -sf "$BYWASH" bin/bywash
export PATH="$PWD/bin:$PATH"
head -c 3000000 /dev/urandom > big.img
cp big.img disk.img
printf 'log:\n\t@printf "fine\\nwarning: not so fine\\n"\n' > Makefile

# Devices: the usual ones, and one to write on.
mount -t tmpfs none dev
for name in null zero full random urandom; do touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
ln -s /proc/self/fd dev/fd
mkdir dev/shm
mknod dev/sdb b $((0x$(stat -c %t "$DEVICE"))) $((0x$(stat -c %T "$DEVICE")))
mount --bind dev /dev
mount -t tmpfs none /mnt
mkdir /mnt/backup
mount -t tmpfs none /run

# Hosts: `host`, which is also called backup, and this one, which has a backend.
printf '127.0.0.1 localhost backend\n10.9.0.2 host backup\n' > hosts
mount --bind hosts /etc/hosts
ip link set lo up
ip netns add there
ip -n there link set lo up
ip link add eth0 type veth peer name eth0 netns there
ip address add 10.9.0.1/24 dev eth0
ip -n there address add 10.9.0.2/24 dev eth0
ip -n there link set eth0 address 02:00:00:00:00:01 up
ip link set eth0 up
bywash flow -q mem-listen:/run/consumer consumed &
consumer=$!

until [ -S /run/consumer ]; do sleep 0.05; done
if [ -n "$THERE" ]; then
    (cd there && exec ip netns exec there sh -c "exec $THERE") 2> there.err &
    there=$!
    sockets='cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6 /proc/net/packet'
    until ip netns exec there sh -c "$sockets" | grep -qv -e local_address -e 'sk  ' || ! kill -0 $there; do
        sleep 0.05
    done
    sleep 0.2
    fingerprint=$(sed -n 's/.*says pin=//p' there.err)
    HERE=${HERE//FINGERPRINT/$fingerprint}
fi
status=0
# What serves for ever has not failed when it is ended.
timeout --kill-after=10 "$SECONDS_MAX" sh -c "$HERE" || status=$?
[ "$status" = 0 ] || [ "$status" = 124 ] || exit "$status"
if [ -n "$THERE" ]; then
    wait $there || { cat there.err >&2; exit 1; }
    cmp big.img there/copy.img
fi
kill $consumer 2> /dev/null || true
