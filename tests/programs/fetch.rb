# One GET: fetch.rb HOST PORT [CERTIFICATE]. Exit codes as of fetch.py. It repeats nothing, and wants its bodies whole.
require 'net/http'
require 'openssl' if ARGV[2]
failures = [SystemCallError, IOError, Net::ProtocolError]
failures << OpenSSL::SSL::SSLError if ARGV[2]
begin
  http = Net::HTTP.new(ARGV[0], ARGV[1].to_i)
  if ARGV[2]
    http.use_ssl = true
    http.ca_file = ARGV[2]
  end
  http.max_retries = 0
  http.ignore_eof = false if http.respond_to? :ignore_eof= # not in Debian 12's
  answer = http.start { |h| h.get('/') }
rescue *failures => e
  abort "#{e.class}: #{e.message}"
end
exit 1 if answer.code.to_i >= 400
exit 3 if answer.body.bytesize != answer['Content-Length'].to_i
