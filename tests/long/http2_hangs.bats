#!/usr/bin/env bats
# Clients of HTTP/2 that nobody here wrote, in clear and inside TLS, against nginx (gRPC: its own server, and nginx before it): a hundred
# streams at once of which one hangs, all of them hang, and a server that restarts (A11).
load ../lib/common
load ../lib/clients
load ../lib/services
load ../lib/talk
load ../lib/http2
load ../lib/tls
load ../lib/hangs

@test "nghttp, a hundred streams of which one hangs: that one is judged, the others finish (A11)" { one_hangs nghttp; }
@test "nghttp in TLS, a hundred streams of which one hangs: that one is judged, the others finish (A9 A11)" { one_hangs nghttp tls; }
@test "h2load, a hundred streams of which one hangs: that one is judged, the others finish (A11)" { one_hangs h2load; }
@test "h2load in TLS, a hundred streams of which one hangs: that one is judged, the others finish (A9 A11)" { one_hangs h2load tls; }
@test "curl, a hundred streams of which one hangs: that one is judged, the others finish (A11)" { one_hangs curl; }
@test "curl in TLS, a hundred streams of which one hangs: that one is judged, the others finish (A9 A11)" { one_hangs curl tls; }
@test "gRPC, a hundred calls of which one hangs: that one is judged, the others finish (A11)" { one_hangs grpc; }
@test "gRPC in TLS, a hundred calls of which one hangs: that one is judged, the others finish (A9 A11)" { one_hangs grpc tls; }

@test "nghttp, all streams hang: the circuit opens (A11)" { all_hang nghttp; }
@test "nghttp in TLS, all streams hang: the circuit opens (A9 A11)" { all_hang nghttp tls; }
@test "h2load, all streams hang: the circuit opens (A11)" { all_hang h2load; }
@test "h2load in TLS, all streams hang: the circuit opens (A9 A11)" { all_hang h2load tls; }
@test "curl, all streams hang: the circuit opens (A11)" { all_hang curl; }
@test "curl in TLS, all streams hang: the circuit opens (A9 A11)" { all_hang curl tls; }
@test "gRPC, all calls hang: the circuit opens (A11)" { all_hang grpc; }
@test "gRPC in TLS, all calls hang: the circuit opens (A9 A11)" { all_hang grpc tls; }

@test "nghttp, and nginx restarts in the midst: what was asked is answered, no failure (A11)" { restarts nghttp; }
@test "nghttp in TLS, and nginx restarts in the midst: what was asked is answered, no failure (A9 A11)" { restarts nghttp tls; }
@test "h2load, and nginx restarts in the midst: what was asked is answered, no failure (A11)" { restarts h2load; }
@test "h2load in TLS, and nginx restarts in the midst: what was asked is answered, no failure (A9 A11)" { restarts h2load tls; }
@test "curl, and nginx restarts in the midst: what was asked is answered, no failure (A11)" { restarts curl; }
@test "curl in TLS, and nginx restarts in the midst: what was asked is answered, no failure (A9 A11)" { restarts curl tls; }
@test "gRPC, and nginx before its server restarts in the midst: what was asked is answered, no failure (A11)" { restarts grpc; }
@test "gRPC in TLS, and nginx before its server restarts in the midst: what was asked is answered, no failure (A9 A11)" { restarts grpc tls; }
