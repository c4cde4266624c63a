# The world in which the examples of a page are run: two hosts on one wire, a device, a program that takes containers,
# and the files, users' groups and folders that examples name. It is run in namespaces of its own (mounts, network,
# processes), with which all of it goes.
#
# In the environment: BYWASH (the command), DOCS (the documentation), DEVICE (a block device), THERE and HERE (what runs at
# which host).
set -eu
mkdir -p dev docs there
head -c 3000000 /dev/urandom > big.img
cp big.img disk.img
printf 'log:\n\t@printf "fine\\nwarning: not so fine\\n"\n' > Makefile

# Folders that examples write into; none of it reaches the machine. What is in /tmp of the machine stays in sight below
# this folder, where the examples are run.
here=$PWD
exec 7< "$DOCS" 8< "$here" 9< "${BYWASH%/*}"
mount -t tmpfs none /mnt
mkdir /mnt/backup
mount -t tmpfs none /run
mkdir /run/bywash
mount -t tmpfs none /var/lib
mkdir -p /var/lib/bywash /var/lib/orders
mount -t tmpfs none /usr/local
mkdir -p /usr/local/bin /usr/local/lib
# The command finds its parts beside itself, or in lib/bywash.
mkdir /usr/local/lib/bywash
mount --bind "/proc/self/fd/9" /usr/local/lib/bywash
ln -s /usr/local/lib/bywash/bywash /usr/local/bin/bywash
mount -t tmpfs none /tmp
mkdir /tmp/here
mount --bind /proc/self/fd/8 /tmp/here
cd /tmp/here
# Not a link: the documentation may itself lie in the machine's /tmp.
mount --bind /proc/self/fd/7 docs
exec 7<&- 8<&- 9<&-

# Devices: the usual ones, and one to write on.
mount -t tmpfs none dev
for name in null zero full random urandom; do touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
ln -s /proc/self/fd dev/fd
mkdir dev/shm
mount -t tmpfs none dev/shm
mknod dev/sdb b $((0x$(stat -c %t "$DEVICE"))) $((0x$(stat -c %T "$DEVICE")))
mount --bind dev /dev

# Groups of users that sockets are given to.
{ cat /etc/group; printf 'prometheus:x:64001:\nkvm:x:64002:\n'; } > group
mount --bind group /etc/group

# A database, a trace of calls, and a store of a device server.
sqlite3 orders.db "CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER);
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO orders SELECT i, i FROM n"
cp orders.db /var/lib/orders/
printf '%s\n' time,process,call,file,offset,length 0,4711,read,/data/a,0,4096 0.0003,4711,sync,/data/a,0,0 > calls.csv
printf '%s\n' '4711 1700000000.000000 read(3</data/a>, "x", 4096) = 4096' > calls.txt

# Waits until a socket is there, at most 20 seconds.
wait_for() {
    local count=0
    until [ -S "$1" ]; do
        count=$((count + 1))
        [ "$count" -lt 400 ] || { echo "$1 is not there" >&2; return 1; }
        sleep 0.05
    done
}

# Runs a command that serves, which must neither end nor fail by itself within so many seconds.
must_serve() {
    local status=0
    timeout --kill-after=10 "$@" || status=$?
    [ "$status" = 124 ] || { echo "exit status $status instead of serving" >&2; return 1; }
}

case $HERE in
*/var/lib/bywash*)
    bywash serve --socket /tmp/made.sock --policy /var/lib/bywash/volumes --device disk=file:/var/lib/disk,size=16M &
    server=$!
    wait_for /tmp/made.sock
    kill $server
    wait $server || true
    ;;
esac

# A display without a screen, a video of two seconds, and raw frames.
case $HERE in
*display:*)
    Xvfb :7 -nolisten tcp -screen 0 640x480x24 2> /dev/null &
    wait_for /tmp/.X11-unix/X7
    export DISPLAY=:7
    unset WAYLAND_DISPLAY
    head -c $((10 * 64 * 48 * 3)) big.img > frames.rgb
    {
        echo "YUV4MPEG2 W64 H48 F25:1 C420jpeg"
        for _ in $(seq 50); do
            echo FRAME
            head -c $((64 * 48 * 3 / 2)) big.img
        done
    } > video.y4m
    ;;
esac

# A sound device without a card: it plays into a file, and records zeros.
case $HERE$THERE in
*alsa:*)
    printf 'pcm.!default { type file slave.pcm quiet file "/dev/null" }\npcm.quiet { type null }\n' > /tmp/asound.conf
    export ALSA_CONFIG_PATH=/tmp/asound.conf
    ;;
esac

# A second of video, of sound and of a transport stream.
case $HERE$THERE in
*live*|*rtp:*|*alsa:*)
    {
        echo "YUV4MPEG2 W64 H48 F25:1 C420jpeg"
        for _ in $(seq 25); do
            echo FRAME
            head -c $((64 * 48 * 3 / 2)) big.img
        done
    } > clip.y4m
    {
        printf 'RIFF\377\377\377\377WAVEfmt \20\0\0\0\1\0\2\0\200\273\0\0\0\356\2\0\4\0\20\0data\0\356\2\0'
        head -c 192000 big.img
    } > song.wav
    head -c 192000 big.img > song.raw
    for _ in $(seq 70); do
        printf 'G\1\0\20'
        head -c 184 big.img
    done > stream.ts
    ;;
esac

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

wait_for /run/consumer
if [ -n "$THERE" ]; then
    (cd there && exec ip netns exec there sh -c "exec $THERE") 2> there.err &
else
    ip netns exec there bywash flow -q tcp-listen:9000,fork null: &
fi
there=$!
sockets='cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6 /proc/net/packet'
until ip netns exec there sh -c "$sockets" | grep -qv -e local_address -e 'sk  ' ||
    { [ -n "$THERE" ] && { [ -S "there${THERE##*/}" ] || [ -n "$(find /run -maxdepth 1 -name s)" ]; }; } ||
    ! kill -0 $there; do
    sleep 0.05
done
sleep 0.2
if [ -n "$THERE" ]; then
    fingerprint=$(sed -n 's/.*says pin=//p' there.err)
    HERE=${HERE//FINGERPRINT/$fingerprint}
fi
{ declare -f wait_for must_serve; echo "set -eo pipefail"; echo "$HERE"; } > script
timeout --kill-after=10 300 bash script
if [ -n "$THERE" ]; then
    wait $there || { cat there.err >&2; exit 1; }
    case $THERE in
    # It is heard.
    *alsa:*) ;;
    # What comes too late on a busy machine is dropped or made up.
    *rtp:*) [ "$(stat -c %s there/received.*)" -gt 10000 ] ;;
    *) cmp big.img there/copy.img ;;
    esac
else
    kill $there
fi
kill $consumer 2> /dev/null || true
