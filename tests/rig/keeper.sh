# The keeper: pid 1 of a rig's pid, mount and network namespaces.
# Everything of the rig lives in these namespaces, so when this process ends,
# the kernel ends, unmounts and unplugs all of it.
#
# usage: keeper.sh DIR CGROUP [HOST LOWER IPV4/LEN IPV6/LEN]...
dir=$1 group=$2
shift 2

# What systemd-nspawn leaves in /run must not meet that of another rig,
# and it shall see one unified cgroup hierarchy, whatever the machine has.
mount -t tmpfs -o mode=755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devpts -o ptmxmode=666,gid=5,mode=620 devpts /dev/pts

# volatile: the rig's disks are thrown away, nobody needs them synced.
overlay() {
	mkdir -p "$dir/hosts/$1/upper" "$dir/hosts/$1/work" "$dir/hosts/$1/root"
	mount -t overlay -o "volatile,lowerdir=$lower,upperdir=$dir/hosts/$1/upper,workdir=$dir/hosts/$1/work" \
		"deploy-ssh-rig-$1" "$dir/hosts/$1/root"
}

# The keeper's own network namespace is the switch between the hosts.
ip link set lo up
ip link add switch type bridge stp_state 0 forward_delay 0 mcast_snooping 0
ip link set switch up

number=0
while [ $# -gt 0 ]; do
	host=$1 lower=$2 ipv4=$3 ipv6=$4
	shift 4
	number=$((number + 1))
	mkdir -p "$dir/hosts/$host" "$dir/net" "/sys/fs/cgroup/$group/$host"
	if [ $number -eq 1 ] && ! overlay "$host" 2>/dev/null; then
		# An overlay can't have its upper layer on every file system,
		# on another overlay for one: memory always will do.
		mount -t tmpfs -o mode=755 tmpfs "$dir/hosts"
		overlay "$host"
	elif [ $number -gt 1 ]; then
		overlay "$host"
	fi

	: >"$dir/net/$host"
	unshare --net="$dir/net/$host" true
	ip link add "port$number" type veth peer name eth0 netns "$dir/net/$host"
	ip link set "port$number" master switch up
	nsenter --net="$dir/net/$host" ip -batch - <<-END
		link set lo up
		link set eth0 up
		address add $ipv4 dev eth0
		address add $ipv6 dev eth0 nodad
	END
done

echo ready
# Until the owner's end of this pipe is closed, by its death at the latest.
# Orphans of the hosts come to pid 1, and leave no zombies when SIGCHLD is ignored.
trap '' CHLD
read -r word || exit 0
# A line instead: the rig is to outlive its owner.
trap - CHLD
exec 9>"$dir/keeper.lock"
flock 9
echo detached
trap '' CHLD
exec sleep infinity
