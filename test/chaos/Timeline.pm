
=pod

=head1 NAME

Timeline - a picture of a history: who held which lock when, and what happened
meanwhile

=head1 SYNOPSIS

  append_to_file('timeline.svg', Timeline::draw($history, $verdict));

=head1 DESCRIPTION

Above, the faults, one below the other where they overlap in time.  Then for
each lock a row for each instance, with its holds as bars: from the answer to
zk_lock until the lock was certainly not held any more, as the clients saw it.
What belongs to a violation or a hole has a red frame, and a red line is drawn
through all rows where it happened.  Pointing at a bar tells more.

A history of very many holds is drawn only around the first violation, or else
its end.

=cut

package Timeline;

use strict;
use warnings;

use List::Util qw(max min);

my %color = (
	committed => '#2e8b57',
	read => '#8fbc8f',			# committed, of a reader
	aborted => '#b0b0b0',		# rolled back, failed, or nothing was done
	unknown => '#e69f00');		# the connection ended, or no answer ever came

my ($left, $row, $max_holds, $around) = (90, 14, 20000, 20);

sub draw
{
	my ($history, $verdict) = @_;
	my @marks = (@{ $verdict->{violations} }, @{ $verdict->{holes} });
	my @holds = grep { defined $_->{entered} } @{ $history->{holds} };
	my ($from, $to) = @$history{qw(start end)};

	if (@holds > $max_holds)
	{
		my ($first) = sort { $a <=> $b } grep { defined } map { $_->{at} } @marks;

		$first //= $to - $around;
		($from, $to) = (max($from, $first - $around), min($to, $first + $around));
		@holds = grep { $_->{entered} < $to && $_->{left} > $from } @holds;
	}
	my $scale = min(200, max(12, 1400 / ($to - $from)));
	my $x = sub { return sprintf('%.1f', $left + $scale * (max($from, min($to, $_[0])) - $from)); };
	my $bar = sub {
		my ($begin, $end, $y, $fill, $title, $more) = @_;
		my $width = sprintf('%.1f', max(0.4, $x->($end) - $x->($begin)));

		return sprintf('<rect x="%s" y="%d" width="%s" height="%d" fill="%s"%s><title>%s</title></rect>',
			$x->($begin), $y, $width, $row - 2, $fill, $more // '', _escape($title));
	};
	my (@out, $y);

	# the time
	$y = 30;
	for (my $t = 0; $t <= $to - $history->{start}; $t++)
	{
		my $at = $history->{start} + $t;
		next if $at < $from || ($t % 5 && $scale < 40);
		push @out, sprintf('<text x="%s" y="%d">%d s</text>', $x->($at), $y - 6, $t);
	}

	# the faults
	my @busy;
	for my $f (sort { $a->{begin} <=> $b->{begin} } @{ $history->{faults} })
	{
		next if $f->{begin} > $to || $f->{end} < $from;
		my $text = $f->{kind} . ($f->{what} ne '' ? " ($f->{what})" : '');
		my $lane = 0;

		# its name needs room, too
		$lane++ while $busy[$lane] && $busy[$lane] > $x->($f->{begin});
		$busy[$lane] = max($x->($f->{end}), $x->($f->{begin}) + 6.2 * length $text) + 4;
		push @out,
		  $bar->($f->{begin}, $f->{end}, $y + $lane * $row, '#f4c2c2',
			sprintf('%s, %.3f s to %.3f s', $text, map { $_ - $history->{start} } @$f{qw(begin end)}));
		push @out, sprintf('<text x="%s" y="%d">%s</text>',
			$x->($f->{begin}), $y + $lane * $row + 10, _escape($text));
	}
	$y += $row * (@busy + 1);

	# the holds
	my (%sections, %marked);
	push @{ $sections{ $_->{hold} } }, $_ for @{ $history->{sections} };
	for my $mark (@marks)
	{
		$marked{ $_ =~ s/\.\d+$//r } = 1 for @{ $mark->{ids} };
		$marked{$_} = 1 for @{ $mark->{ids} };
	}
	my %row;
	my %users;
	for my $h (@holds)
	{
		$users{$_}{ $h->{instance} } = 1 for @{ $h->{locks} };
	}
	for my $lock (sort keys %users)
	{
		for my $instance (sort keys %{ $users{$lock} })
		{
			$row{$lock}{$instance} = $y;
			push @out, sprintf('<text x="4" y="%d">%s in %s</text>', $y + 10, _escape($lock), $instance);
			push @out, sprintf('<rect x="%d" y="%d" width="%s" height="%d" fill="#f6f6f6"/>',
				$left, $y, $x->($to) - $left, $row - 2);
			$y += $row;
		}
		$y += 6;
	}
	for my $h (@holds)
	{
		my @done = @{ $sections{ $h->{hold} } // [] };
		for my $lock (@{ $h->{locks} })
		{
			my $fill =
			    grep({ $_->{done}{$lock} } @done) ? ($h->{mode} eq 'shared' ? 'read' : 'committed')
			  : grep({ $_->{outcome} =~ /unknown|hangs/ } @done) || $h->{result} =~ /died|hangs/ ? 'unknown'
			  : 'aborted';
			my $title = sprintf('%s, pid %d, %s %s, %.3f s to %.3f s: %s', $h->{hold}, $h->{pid},
				$h->{scope}, $h->{mode},
				(map { $_ - $history->{start} } @$h{qw(entered left)}),
				join(', ', map {
					"$_->{id} $_->{outcome}" . ($_->{sqlstate} ? " $_->{sqlstate}" : '')
				} @done) || 'nothing done');

			push @out, $bar->($h->{entered}, $h->{left}, $row{$lock}{ $h->{instance} },
				$color{$fill}, $title,
				$marked{ $h->{hold} } ? ' stroke="#d00000" stroke-width="1.5"' : '');
		}
	}

	# where it went wrong
	for my $mark (grep { defined $_->{at} && $_->{at} >= $from && $_->{at} <= $to } @marks)
	{
		push @out, sprintf(
			'<line x1="%s" x2="%1$s" y1="24" y2="%d" stroke="#d00000" stroke-dasharray="3,2"><title>%s</title></line>',
			$x->($mark->{at}), $y, _escape(($mark->{kind} // 'hole') . ": $mark->{text}"));
	}

	# what the colors mean
	my $at = $left;
	for my $what (sort keys %color)
	{
		push @out, sprintf('<rect x="%d" y="%d" width="12" height="12" fill="%s"/>', $at, $y + 4, $color{$what});
		push @out, sprintf('<text x="%d" y="%d">%s</text>', $at + 16, $y + 14, $what);
		$at += 100;
	}
	$y += 24;

	return join("\n",
		sprintf('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="10">',
			$x->($to) + 20, $y),
		'<rect width="100%" height="100%" fill="white"/>', @out, '</svg>', '');
}

sub _escape
{
	my ($text) = @_;
	my %name = ('&' => 'amp', '<' => 'lt', '>' => 'gt', '"' => 'quot');
	return $text =~ s/([&<>"])/&$name{$1};/gr;
}

1;
