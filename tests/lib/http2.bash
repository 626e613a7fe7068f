# HTTP/2 servers and clients of a few lines of python each, by Debian's python3-h2. Load it after `lib/services` and `lib/talk`.

nursery_modules='h2.config h2.connection h2.errors h2.events h2.exceptions h2.settings'
http2_prelude='
import h2.config, h2.connection, h2.errors, h2.events, h2.exceptions, h2.settings
'
http2_server='
class Http2:
    def __init__(self, c):
        self.c, self.lock, self.paths, self.bodies, self.ended = c, threading.RLock(), {}, {}, set()
        self.h = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8", validate_outbound_headers=False))

    def flush(self):
        self.c.sendall(self.h.data_to_send())

    def answer(self, sid, status=200, body=b"ok\n", trailers=None, fields=()):
        with self.lock:
            self.h.send_headers(sid, [(":status", str(status)), *fields], end_stream=not body and trailers is None)
            if body:
                self.h.send_data(sid, body, end_stream=trailers is None)
            if trailers is not None:
                self.h.send_headers(sid, trailers, end_stream=True)
            self.flush()

    def reset(self, sid, code):
        with self.lock:
            self.h.reset_stream(sid, code)
            self.flush()

    def drip(self, sid, pieces, wait):  # a piece now and then; the answer is whole at the end
        def run():
            with self.lock:
                self.h.send_headers(sid, [(":status", "200")])
                self.flush()
            for i in range(pieces):
                time.sleep(wait)
                with self.lock:
                    self.h.send_data(sid, b"x", end_stream=i == pieces - 1)
                    self.flush()
        threading.Thread(target=run, daemon=True).start()

    def go_away(self, last, code=0):  # the app of h2 itself would say nothing more after it
        with self.lock:
            self.c.sendall(struct.pack(">I", 8)[1:] + b"\7\0\0\0\0\0" + struct.pack(">II", last, code))

    def serve(self, first=b"", settings=None):
        if settings is None:
            self.h.initiate_connection()
            self.h.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 1000})
        else:  # h2c: stream 1 is there
            self.h.initiate_upgrade_connection(settings)
            self.paths[1] = "/upgraded"
        self.flush()
        if settings is not None:
            asked(self, 1, "/upgraded")
        while True:
            data = first or self.c.recv(65536)
            first = b""
            if not data:
                say("ended")
                return
            with self.lock:
                events = self.h.receive_data(data)
                self.flush()
            for e in events:
                if isinstance(e, h2.events.RequestReceived):
                    self.paths[e.stream_id] = dict(e.headers)[":path"]
                elif isinstance(e, h2.events.DataReceived):
                    with self.lock:
                        self.h.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
                        self.flush()
                elif isinstance(e, h2.events.StreamReset):
                    say("cancelled", self.paths[e.stream_id])
                if isinstance(e, h2.events.StreamEnded):
                    asked(self, e.stream_id, self.paths[e.stream_id])

def serve(c):
    try:
        Http2(c).serve()
    except ConnectionResetError:
        say("reset")
'
# serves_http2 NAME: a server; python on stdin defines asked(server, stream, path), called with each whole request.
serves_http2() {
	local code
	all_of code
	python "$1" "$server_prelude$http2_prelude$http2_server$code$server_main"
	server_is_there "$1"
}

http2_client='
class Client:
    def __init__(self, s=None, begins="initiate_connection", first=b""):
        self.s = s or dial()
        self.h = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.status, self.body, self.trailers, self.resets, self.done, self.last = {}, {}, {}, {}, set(), None
        getattr(self.h, begins)()
        self.flush()
        if first:
            self.take(first)

    def flush(self):
        data = self.h.data_to_send()
        if data:
            self.s.sendall(data)

    def ask(self, path, fields=(), ends=True):
        sid = self.h.get_next_available_stream_id()
        self.h.send_headers(sid, [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "here"), *fields], end_stream=ends)
        self.flush()
        return sid

    def cancel(self, sid):
        self.h.reset_stream(sid, 8)
        self.flush()

    def read(self):  # False at the end of the stream
        data = self.s.recv(65536)
        if data:
            self.take(data)
        return bool(data)

    def take(self, data):
        for e in self.h.receive_data(data):
            if isinstance(e, h2.events.ResponseReceived):
                self.status[e.stream_id] = int(dict(e.headers)[":status"])
            elif isinstance(e, h2.events.TrailersReceived):
                self.trailers[e.stream_id] = dict(e.headers)
            elif isinstance(e, h2.events.DataReceived):
                self.body[e.stream_id] = self.body.get(e.stream_id, b"") + e.data
                self.h.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, h2.events.StreamEnded):
                self.done.add(e.stream_id)
            elif isinstance(e, h2.events.StreamReset):
                self.resets[e.stream_id] = e.error_code
                self.done.add(e.stream_id)
            elif isinstance(e, h2.events.ConnectionTerminated):
                self.last = e.last_stream_id
        self.flush()

    def until(self, *sids):
        while not self.done.issuperset(sids):
            assert self.read(), "an end of the stream"

    def get(self, path, fields=()):
        sid = self.ask(path, fields)
        self.until(sid)
        return self.status.get(sid)
'
# both_http2 PORT [WORDS]: as both (talk.bash), with class Client.
both_http2() {
	local code
	all_of code
	both "$@" <<<"$http2_prelude$http2_client$code"
}

# nghttpd_start: a server of files; nghttpd_port, its folder $dir/www.
nghttpd_start() {
	mkdir "$dir/www"
	head -c 200000 /dev/urandom >"$dir/www/data"
	echo small >"$dir/www/small"
	nghttpd_port=$(free_port)
	start nghttpd bare nghttpd --no-tls --address 127.0.0.1 -d "$dir/www" "$nghttpd_port"
	up nghttpd "$nghttpd_pid" "$nghttpd_port"
}

grpc_prelude='
import grpc
from concurrent import futures

class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer(details.method, request, context))

def serve_on(port, certificate=None):  # a chain and a key in one file
    server = grpc.server(futures.ThreadPoolExecutor(20), handlers=(Handler(),))
    at = "127.0.0.1:%d" % port
    if certificate:
        octets = open(certificate, "rb").read()
        port = server.add_secure_port(at, grpc.ssl_server_credentials([(octets, octets)]))
    else:
        port = server.add_insecure_port(at)
    server.start()
    return server, port

def channel_to(port, certificate=None):
    at = "127.0.0.1:%d" % port
    if certificate:
        return grpc.secure_channel(at, grpc.ssl_channel_credentials(open(certificate, "rb").read()))
    return grpc.insecure_channel(at)

def code_of(channel, method, timeout=None):
    try:
        channel.unary_unary(method)(b"x", timeout=timeout)
        return 0
    except grpc.RpcError as e:
        return e.code().value[0]
'
# serves_grpc NAME [CERTIFICATE]: python on stdin defines answer(method, request, context).
serves_grpc() {
	local code
	all_of code
	start "$1" bare python3 -u -c "$server_prelude$grpc_prelude
$code
server, port = serve_on(0, ${2:+'$2'})
say('port', port)
server.wait_for_termination()
threading.Event().wait()"
	server_is_there "$1"
}
