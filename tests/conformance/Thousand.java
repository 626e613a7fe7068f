/* A JVM with so many connections open at once: all connect, and when the last one has, all ask; each must get 200. */
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;

class Thousand {
	public static void main(String[] args) throws Exception {
		var to = new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0]));
		int count = Integer.parseInt(args[1]), open = 0, connected = 0;
		var outcomes = new TreeMap<String, Integer>();
		var all = new ArrayList<SocketChannel>();
		var selector = Selector.open();
		for (int i = 0; i < count; i++) {
			var channel = SocketChannel.open();
			channel.configureBlocking(false);
			channel.register(selector, SelectionKey.OP_CONNECT, new StringBuilder());
			channel.connect(to);
			all.add(channel);
			open++;
		}
		var buffer = ByteBuffer.allocate(4096);
		while (open > 0) {
			if (selector.select(30000) == 0)
				break;
			for (var key : List.copyOf(selector.selectedKeys())) {
				var channel = (SocketChannel) key.channel();
				var got = (StringBuilder) key.attachment();
				String outcome = null;
				try {
					if (key.isConnectable() && channel.finishConnect()) {
						key.interestOps(SelectionKey.OP_READ);
						connected++;
					} else if (key.isReadable()) {
						buffer.clear();
						int n = channel.read(buffer);
						if (n >= 0)
							got.append(new String(buffer.array(), 0, n));
						else
							outcome = got.length() > 12 ? got.substring(9, 12) : "closed";
					}
				} catch (Exception e) {
					outcome = e.toString();
				}
				if (outcome != null) {
					outcomes.merge(outcome, 1, Integer::sum);
					channel.close();
					open--;
				}
			}
			selector.selectedKeys().clear();
			if (connected == count) {
				connected = 0;
				for (var channel : all)
					channel.write(ByteBuffer.wrap("GET / HTTP/1.0\r\n\r\n".getBytes()));
			}
		}
		System.out.println(outcomes);
	}
}
