# Read before keeper.sh and root.sh, in a mount and pid namespace of their own.
# First: no mount made from here on may reach the machine's own mount table.
if ! mount --make-rprivate / 2>/dev/null; then
	# / is not a mount point: this machine is a chroot. Propagation can then only be
	# changed for the mounts inside it, so a private one carries a copy of the whole tree,
	# and that copy has / as a mount point (which systemd-nspawn needs too).
	anchor=/sys/fs/cgroup
	mount --make-rprivate /sys
	mount -t tmpfs tmpfs $anchor
	mkdir $anchor/root
	mount --rbind / $anchor/root
	mount --make-rprivate $anchor/root
	exec chroot $anchor/root /bin/sh "$0" "$@"
fi
mount -t proc proc /proc
