# One GET: fetch.pl HOST PORT [CERTIFICATE]. Exit codes as of fetch.py.
use HTTP::Tiny;
my ($scheme, %tls) = $ARGV[2] ? ('https', verify_SSL => 1, SSL_options => {SSL_ca_file => $ARGV[2]}) : ('http');
my $answer = HTTP::Tiny->new(timeout => 60, %tls)->get("$scheme://$ARGV[0]:$ARGV[1]/");
unless ($answer->{success}) {
	print STDERR "$answer->{status} $answer->{content}\n";
	exit 1;
}
exit 3 if length $answer->{content} != $answer->{headers}{'content-length'};
