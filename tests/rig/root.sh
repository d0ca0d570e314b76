# Makes the root file system that all hosts of a rig share as their lower layer.
#
# usage: root.sh DIR SUITE MIRROR SCRIPT PACKAGES
dir=$1 suite=$2 mirror=$3 script=$4 packages=$5

debootstrap --variant=minbase --include="$packages" "$suite" "$dir" "$mirror" "$script"
cd "$dir"
rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/*

# NixOS owns all of /etc/systemd/system: its activation puts a link into the store there.
# What Debian needs to come up is therefore enabled in /usr, and nothing else is.
units=usr/lib/systemd/system
rm -rf etc/systemd/system
mkdir -p etc/systemd/system $units/multi-user.target.wants
ln -s ../ssh.service $units/multi-user.target.wants/ssh.service
ln -sf ssh.service $units/sshd.service
# A host has no console, and nobody reaches it but over its network.
rm -f usr/lib/systemd/system-generators/systemd-getty-generator $units/getty.target.wants/*
rm -f usr/lib/systemd/system-generators/systemd-ssh-generator

# Identities are each host's own.
rm -f etc/ssh/ssh_host_* etc/hostname etc/resolv.conf
: >etc/machine-id

mkdir -p etc/ssh/sshd_config.d
{
	# Tests read the server's side of each connection from the journal.
	echo 'LogLevel DEBUG1'
	# A test that is refused on purpose must not lock out the next one.
	# OpenSSH before 9.8 has no such penalties, and refuses the word.
	if grep -q PerSourcePenalties usr/sbin/sshd; then echo 'PerSourcePenalties no'; fi
} >etc/ssh/sshd_config.d/90-rig.conf

mkdir -p usr/lib/systemd/journald.conf.d
cat >usr/lib/systemd/journald.conf.d/rig.conf <<'END'
[Journal]
Storage=volatile
RateLimitBurst=0
END

mkdir -p etc/nix nix/store nix/var/nix
cat >etc/nix/nix.conf <<'END'
experimental-features = nix-command flakes
sandbox = false
build-users-group =
substituters =
END

# Newer than /usr: so no host spends its boot on ldconfig and the like.
touch etc/.updated var/.updated
