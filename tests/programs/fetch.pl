# One GET: fetch.pl HOST PORT. Exit codes as of fetch.py.
use HTTP::Tiny;
my $answer = HTTP::Tiny->new(timeout => 60)->get("http://$ARGV[0]:$ARGV[1]/");
unless ($answer->{success}) {
	print STDERR "$answer->{status} $answer->{content}\n";
	exit 1;
}
exit 3 if length $answer->{content} != $answer->{headers}{'content-length'};
