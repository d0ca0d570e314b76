# Fills the outputs of one derivation with copies of this machine's files. Sizes are
# those of a system's closure in kind: a few paths are large and most are small.
use strict;
use warnings;
use File::Find;
use File::Copy;

my ( @files, $total );
find( { no_chdir => 1, wanted => sub {
    return if -l $_ or !-f _ or -s _ > 4 << 20 or -s _ < 64;
    push @files, [ $_, -s _, ( -x _ ) ? 1 : 0 ];
    $total += -s _;
} }, '/usr/bin', '/usr/sbin', '/usr/lib', '/usr/share' );
@files = sort { $a->[0] cmp $b->[0] } @files;

my ( $paths, $from, $size ) = @ENV{qw(paths from size)};
my @outputs = split ' ', $ENV{outputs};
my @below = split ' ', $ENV{below};
my $sum = 0;
$sum += ( $_ + 1 )**-0.9 for 0 .. $paths - 1;
for my $i ( 0 .. $#outputs ) {
    my $number = $from + $i;
    # Large paths are spread over the layers.
    my $rank = ( $number * 7919 ) % $paths;
    my $want = $size / $sum * ( $rank + 1 )**-0.9;
    my $dir = $ENV{ $outputs[$i] };
    mkdir $dir or die "$dir: $!";
    my $have = 0;
    # A path that is larger than all files together has them again, under other names.
    for ( my $n = ( $number * 104729 ) % @files ; $have < $want ; $n++ ) {
        my ( $file, $bytes, $executable ) = @{ $files[ $n % @files ] };
        my $part = $want - $have < $bytes ? int( $want - $have ) + 1 : $bytes;
        open my $in, '<:raw', $file or next;
        read $in, my $text, $part;
        # The number and the seed keep equal files of two paths from being one.
        ( my $name = $file ) =~ tr{/}{_};
        open my $out, '>:raw', "$dir/$name-$n" or die $!;
        print $out $text;
        close $out;
        chmod 0755, "$dir/$name-$n" if $executable;
        $have += $bytes;
    }
    open my $refs, '>', "$dir/references" or die $!;
    print $refs "$ENV{seed} $number\n";
    print $refs "$below[ ( $number * 31 + $_ * 17 ) % @below ]\n" for @below ? 1 .. 4 : ();
    close $refs;
}
