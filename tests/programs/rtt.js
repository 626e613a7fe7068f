// usage: rtt.js PORT N: N requests one after another on a kept connection; their mean in ms, and the share of a processor in percent.
const http = require("http");
const [port, n] = process.argv.slice(2).map(Number);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const ask = () => new Promise((done, fail) => {
	http.get({ host: "127.0.0.1", port, agent, path: "/" }, (r) => { r.resume(); r.on("end", done); }).on("error", fail);
});
(async () => {
	await ask();
	const begun = process.hrtime.bigint(), cpu = process.cpuUsage();
	for (let i = 0; i < n; i++) await ask();
	const ms = Number(process.hrtime.bigint() - begun) / 1e6, used = process.cpuUsage(cpu);
	console.log((ms / n).toFixed(1), ((used.user + used.system) / 10 / ms).toFixed(1));
	agent.destroy();
})();
