#!/usr/bin/env bats
# PostgreSQL: a login is the beginning of the call that it is made for, and FATAL can say that the server is there for nobody. A server of a
# few lines, as a pooler whose database is away answers.
load lib/common
load lib/services
load lib/talk

# serves_postgres: python on stdin defines asked(c, user, words), called with each query; a user "CODE..." is refused with that.
postgres_server='
def exactly(c, n):
    b = b""
    while len(b) < n:
        o = c.recv(n - len(b))
        if not o:
            raise ConnectionResetError
        b += o
    return b
def message(kind, body):
    return kind + struct.pack(">I", len(body) + 4) + body
def fatal(code):
    return message(b"E", b"SFATAL\0VFATAL\0C%s\0Mno\0\0" % code.encode())
LOGGED_IN = message(b"R", bytes(4)) + message(b"S", b"server_version\0" b"15.0\0") + message(b"Z", b"I")
ANSWER = message(b"T", b"\0\1a\0" + bytes(6) + b"\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0") + message(b"D", b"\0\1\0\0\0\2ok") + message(b"C", b"SELECT 1\0") + message(b"Z", b"I")
def serve(c):
    while True:
        n, code = struct.unpack(">II", exactly(c, 8))
        rest = exactly(c, n - 8)
        if code >> 16 == 3:
            break
        c.sendall(b"N")
    user = dict(zip(*[iter(rest.split(b"\0"))] * 2))[b"user"].decode()
    if user[:1].isdigit():
        c.sendall(fatal(user[:5]))
        return
    if user.startswith("asked"):
        c.sendall(message(b"R", b"\0\0\0\3"))
        exactly(c, struct.unpack(">xI", exactly(c, 5))[0] - 4)
    c.sendall(LOGGED_IN)
    say("logged in", user)
    while True:
        kind, n = struct.unpack(">cI", exactly(c, 5))
        words = exactly(c, n - 4)
        if kind == b"X":
            return
        asked(c, user, words)
'
serves_postgres() {
	local code
	all_of code
	serves server <<<"$postgres_server$code"
}
query() { # HOW USER
	PGCONNECT_TIMEOUT=20 PGPASSWORD=x "$1" psql -w -X -At -d "host=127.0.0.1 port=$server_port user=$2 dbname=a sslmode=prefer gssencmode=disable" -c 'select 1' 2>&1
}
client='
def message(kind, body):
    return kind + struct.pack(">I", len(body) + 4) + body
def until_ready(s):
    b = b""
    while not b.endswith(b"Z\0\0\0\5I"):
        o = s.recv(100)
        assert o, b
        b += o
def login():
    s = dial()
    s.sendall(message(b"", struct.pack(">I", 196608) + b"user\0a\0\0"))
    until_ready(s)
    return s
QUERY = message(b"Q", b"select 1\0")
'

@test "a pooler that answers logins while its database hangs: each call is a failure, and the fifth opens (A1)" {
	serves_postgres <<-'END'
		def asked(c, user, words):
		    if user.endswith("well"):
		        c.sendall(ANSWER)
	END
	assert_equal "$(query bare well)" ok
	shim_part
	export RESIL_SET='answer_timeout=300ms;recovery_timeout=5m;recovery_max=5m'
	assert_equal "$(query under well)" ok
	for user in a asked a asked a; do
		run query under "$user"
		assert_failure
	done
	assert_equal "$(tally "$server_port")" "1 success 5 failure 1 neutral answer_timeout 5" # psql says goodbye
	run query under well
	assert_failure
	assert_output --partial 'Connection refused'
}

@test "FATAL of class 53 or 57P says that the server is there for nobody; others are answers (A14)" {
	serves_postgres <<-'END'
		def asked(c, user, words):
		    c.sendall(ANSWER if user == "well" else fatal(user[1:]))
		    if user != "well":
		        raise ConnectionResetError
	END
	for how in bare under; do
		[ "$how" = bare ] || shim_part
		export RESIL_SET='failure_threshold=0'
		assert_equal "$(query "$how" well)" ok
		for user in 57P03 53300 28P01 3D000 q57P02 q53200; do
			run query "$how" "$user"
			assert_failure
			assert_output --partial 'FATAL'
		done
	done
	assert_equal "$(tally "$server_port")" "3 success 4 failure 1 neutral http_gateway 4" # psql says goodbye
}

@test "a login and no question is how pools warm up: neutral; used three limits later it is well (A7 B7)" {
	serves_postgres <<-'END'
		def asked(c, user, words):
		    c.sendall(ANSWER)
	END
	set='answer_timeout=300ms;stall_timeout=300ms;deadline=400ms' both "$server_port" <<-END
		$client
		login().close()
		s = login()
		time.sleep(1.3)
		for i in range(3):
		    s.sendall(QUERY)
		    in_time(300, until_ready, s)
		s.close()
	END
	assert_equal "$(tally "$server_port")" "3 success 1 neutral"
}

@test "a server that shuts down says so on idle connections: their next question is neutral (A7)" {
	serves_postgres <<-'END'
		kept, ended = [], []
		def asked(c, user, words):
		    if c in ended:
		        return
		    if words.startswith(b"end"):
		        for k in kept:
		            k.sendall(fatal("57P01"))
		            k.shutdown(socket.SHUT_WR)
		        ended.extend(kept)
		        kept.clear()
		    else:
		        kept.append(c)
		    c.sendall(ANSWER)
	END
	set='failure_threshold=1' both "$server_port" <<-END
		$client
		s, t, u = login(), login(), login()
		for c in s, t:
		    c.sendall(QUERY)
		    until_ready(c)
		u.sendall(message(b"Q", b"end\0"))
		until_ready(u)
		u.close()
		for c in s, t:
		    assert readable(c, 10000)
		    c.sendall(QUERY)
		    b = b""
		    while o := c.recv(100):
		        b += o
		    assert b"57P01" in b
		    c.close()
	END
	assert_equal "$(tally "$server_port")" "3 success 2 neutral"
}
