
=pod

=head1 NAME

DocPage - the blocks of a page of the documentation, and how to run them

=head1 SYNOPSIS

  my $page = DocPage->new('doc/patterns.md', { a => $a, b => $b });

  for my $section ($page->sections)
  {
      $page->run_block($_, $section->{title}) for @{ $section->{blocks} };
      $page->end_section;
  }

=head1 DESCRIPTION

A block is what stands between two lines of C<```>, indented or not; its kind is
behind the first of them: C<sql>, C<sh>, C<python>, ...  The comment ahead of a
block of SQL tells where it is run:

  <!-- run: a b -->            in instance a, then in instance b
  <!-- run: a.x -->            in session x of instance a (default: main)
  <!-- run: a b at once -->    in all of these sessions at the same time
  <!-- run: a b at once x8 --> in eight sessions of each at the same time
  <!-- run: a waits -->        until it waits for ZooKeeper, and goes on
  <!-- run: a fails 40001 -->  an error with this SQLSTATE is right
  <!-- run: no, because ... --> not at all

A block of C<text> behind it is what the last statement shows.  The comment

  <!-- name: zoo.cfg -->

gives a block of any kind a name.

=cut

# Copyright (c) 2026, zklock developers

package DocPage;

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkSession;
use ZooKeeper;

=pod

=head1 METHODS

=over

=item DocPage->new($file, \%clusters, %options)

Read a page.  The instances are those that comments name.  Options:

  run         where blocks of SQL without a comment are run; without it, such a
              block is an error
  dbname      the database (default "postgres")
  replace     a function that gets the SQL of a block and returns what is run

=item DocPage::with_db1($sql, $node, $dbname)

The SQL, with the address of an instance in place of that of db1, which pages
name.

=cut

sub with_db1
{
	my ($sql, $node, $dbname) = @_;
	my ($host, $port, $user) = ($node->host, $node->port, scalar getpwuid($<));

	$sql =~ s/host 'db1', dbname 'shop'/host '$host', port '$port', dbname '$dbname'/g;
	$sql =~ s/user 'shop', password 'secret'/user '$user', password ''/g;
	return $sql;
}

sub new
{
	my ($class, $file, $clusters, %options) = @_;
	my $self = bless {
		file => $file,
		clusters => $clusters,
		dbname => 'postgres',
		sections => [ { title => $file, blocks => [] } ],
		session => {},
		%options }, $class;

	$self->_read;
	return $self;
}

=pod

=item sections()

A list of hashes: C<title>, the heading; C<blocks>, a list.  What is ahead of
the first C<##> is a section that has the file's name.  Sections without a block
are left out.

A block is a hash: C<kind>, C<text>, C<line>; C<name>, if it has one; of SQL,
C<run>; and C<rows>, if a block of text is behind it: what the last statement
shows, as psql -At would.

=item blocks($kind)

All blocks of that kind, or all.

=item named($name)

The text of the block of that name.

=cut

sub sections { return grep { @{ $_->{blocks} } } @{ $_[0]{sections} }; }

sub blocks
{
	my ($self, $kind) = @_;
	return grep { !defined $kind || $_->{kind} eq $kind }
	  map { @{ $_->{blocks} } } $self->sections;
}

sub named
{
	my ($self, $name) = @_;
	my @found = grep { ($_->{name} // '') eq $name } $self->blocks;

	die "$self->{file} has " . @found . " blocks named $name" if @found != 1;
	return $found[0]{text};
}

sub _read
{
	my ($self) = @_;
	my ($block, $indent, %ahead, $line);

	for (split /\n/, slurp_file($self->{file}))
	{
		$line++;
		if (defined $indent)
		{
			if (/^\s*```$/)
			{
				$self->_add($block, \%ahead);
				undef $indent;
				%ahead = ();
			}
			else
			{
				$block->{text} .= s/^\Q$indent\E//r . "\n";
			}
		}
		elsif (/^## (.*)/)
		{
			push @{ $self->{sections} }, { title => $1, blocks => [] };
		}
		elsif (/^\s*<!-- (run|name): (.*) -->$/)
		{
			$ahead{$1} = $2;
		}
		elsif (/^(\s*)```(\w*)$/)
		{
			$indent = $1;
			$block = { kind => $2, text => '', line => $line };
		}
		elsif (/```/)
		{
			die "$self->{file}, line $line: what is this?";
		}
	}
	die "$self->{file}: a block does not end" if defined $indent;
	return;
}

sub _add
{
	my ($self, $block, $ahead) = @_;
	my $blocks = $self->{sections}[-1]{blocks};
	my $where = "$self->{file}, line $block->{line}";

	if ($block->{kind} eq 'text' && @$blocks && $blocks->[-1]{kind} eq 'sql')
	{
		$blocks->[-1]{rows} = _rows($block->{text});
		return;
	}
	if ($block->{kind} eq 'sql')
	{
		$block->{run} = $ahead->{run} // $self->{run}
		  // die "$where does not say where it is run";
		die "$where does not say why it is not run" if $block->{run} =~ /^no\W*$/;
	}
	$block->{name} = $ahead->{name} if defined $ahead->{name};
	push @$blocks, $block;
	return;
}

# Rows as psql prints them, without heading and alignment.
sub _rows
{
	my @lines = grep { !/^\(\d+ rows?\)$/ } split /\n/, $_[0];

	return join("\n", map { join('|', map { s/^\s+|\s+$//gr } split /\|/) } @lines[2 .. $#lines]);
}

=pod

=item session($name)

The session of that name ("a", "a.x"), begun when it is first asked for.

=item run_block($block, $title)

Run a block of SQL, and test that it ends as the page says.

=item end_section()

End all sessions, and wait until the instances hold no lock.

=cut

sub session
{
	my ($self, $name) = @_;
	my ($cluster) = split /\./, $name;

	return $self->{session}{$name} //=
	  ZkSession->new($self->{clusters}{$cluster} // die($name), $self->{dbname});
}

sub run_block
{
	my ($self, $block, $title) = @_;

	return if $block->{run} =~ /^no\b/;

	my ($names, $at_once, $times, $waits, $sqlstate) =
	  $block->{run} =~ /^([a-c](?:\.\w+)?(?: [a-c](?:\.\w+)?)*)( at once)?(?: x(\d+))?( waits)?(?: fails (\w{5}))?$/
	  or die "\"run: $block->{run}\" is not understood";
	my $sql = $self->{replace} ? $self->{replace}->($block->{text}) : $block->{text};
	my ($first) = split /\n/, $block->{text};
	my @names = split / /, $names;
	my $check = sub {
		my ($name, $result) = @_;

		is($result->{sqlstate}, $sqlstate, "$title: $first in $name")
		  or diag($result->{message});
		is(_last_rows($result->{out}, $block->{rows}),
			$block->{rows}, "$title: what $name shows")
		  if defined $block->{rows};
	};

	if ($times)
	{
		@names = map { my $n = $_; map { "$_.$n" } @names } (1 .. $times);
	}
	$self->session($_) for (@names);
	for my $name (@names)
	{
		my $session = $self->session($name);

		# a block before has left it waiting
		is($session->result->{message}, undef, "$title: $name has waited")
		  if delete $session->{left_waiting};

		$session->send($sql);
		if ($waits)
		{
			$session->wait_waiting(2);
			$session->{left_waiting} = 1;
		}
		elsif (!$at_once)
		{
			$check->($name, $session->result);
		}
	}
	if ($at_once)
	{
		$check->($_, $self->session($_)->result) for (@names);
	}
	return;
}

# As many of the last lines as there are in what is expected.
sub _last_rows
{
	my ($out, $expected) = @_;
	my @lines = split /\n/, $out, -1;
	my $n = () = split /\n/, $expected, -1;

	splice(@lines, 0, @lines - $n) if @lines > $n;
	return join("\n", @lines);
}

sub end_section
{
	my ($self) = @_;

	$_->quit for (values %{ $self->{session} });
	$self->{session} = {};
	$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks')
	  for (values %{ $self->{clusters} });
	return;
}

=pod

=back

=cut

1;
