
=pod

=head1 NAME

Dice - random numbers that depend on nothing but a seed

=head1 SYNOPSIS

  my $dice = Dice->new($seed, 'client', 7);
  $dice->below(10);                     # 0 .. 9
  $dice->between(0.5, 2);               # any number there
  $dice->one_of('a', 'b');
  $dice->weighted(often => 9, rarely => 1);

Perl's own generator is one for the whole process, so what each part of it gets
would depend on what the others have taken.

=cut

package Dice;

use strict;
use warnings;

use Digest::MD5 qw(md5);

sub new
{
	my ($class, @seed) = @_;
	return bless { seed => join("\0", @seed), n => 0 }, $class;
}

# A number from 0 up to 1.
sub _next
{
	my ($self) = @_;
	return unpack('N', md5("$self->{seed}\0" . $self->{n}++)) / 2**32;
}

sub below { my ($self, $n) = @_; return int($self->_next * $n); }

sub between { my ($self, $low, $high) = @_; return $low + $self->_next * ($high - $low); }

sub chance { my ($self, $p) = @_; return $self->_next < $p; }

sub one_of { my ($self, @list) = @_; return $list[ $self->below(scalar @list) ]; }

sub weighted
{
	my ($self, @list) = @_;
	my %weight = @list;
	my @kinds = sort keys %weight;
	my $total = 0;

	$total += $_ for values %weight;
	my $at = $self->_next * $total;
	for my $kind (@kinds)
	{
		return $kind if $weight{$kind} > 0 && ($at -= $weight{$kind}) < 0;
	}
	return (grep { $weight{$_} > 0 } @kinds)[-1];
}

1;
