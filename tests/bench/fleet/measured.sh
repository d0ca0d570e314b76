# Runs a command and says its exit code, its seconds, its CPU time as user and system
# seconds, the most KiB that it and its descendants had at one time, and how many these
# were at most. A page that several of them have counts once (Pss, see proc_pid_smaps(5)).
began=$(date +%s.%N)
bash -c "exec $1" >/root/bench.out 2>/root/bench.err </dev/null &
pid=$!
perl -e '
my ($top, $peak, $most) = ($ARGV[0], 0, 0);
while (kill 0, $top) {
  my %of;
  for (glob "/proc/[0-9]*") {
    open my $f, "<", "$_/stat" or next;
    my $line = <$f> // next;
    push @{$of{$2}}, $1 if $line =~ /^(\d+) \(.*\) \S (\d+)/s;
  }
  my @all = ($top);
  for (my $i = 0; $i < @all; $i++) { push @all, @{$of{$all[$i]} // []}; }
  my $sum = 0;
  for (@all) {
    open my $f, "<", "/proc/$_/smaps_rollup" or next;
    while (<$f>) { $sum += $1 if /^Pss:\s+(\d+)/; }
  }
  $peak = $sum if $sum > $peak;
  $most = @all if @all > $most;
  select undef, undef, undef, 0.2;
}
print "$peak $most\n";
' "$pid" >/root/bench.peak &
sampler=$!
wait "$pid"
status=$?
ended=$(date +%s.%N)
# bash counts only what it has waited for, so not the sampler.
times >/root/bench.times
wait "$sampler"
seconds() { tail -n 1 /root/bench.times | perl -ne 'print join " ", map { /(\d+)m([\d.]+)s/; 60 * $1 + $2 } split'; }
echo "$status $(echo "$began $ended" | perl -ane 'print $F[1]-$F[0]') $(seconds) $(cat /root/bench.peak)"
