// One GET: fetch.js HOST PORT [CERTIFICATE]. Exit codes as of fetch.py.
const fail = e => {
	console.error(e.code, e.message);
	process.exit(1);
};
const ca = process.argv[4] && require('fs').readFileSync(process.argv[4]);
require(ca ? 'https' : 'http').get({host: process.argv[2], port: process.argv[3], ca}, answer => {
	let length = 0;
	answer.on('data', piece => length += piece.length);
	answer.on('error', fail);
	answer.on('end', () => process.exit(answer.statusCode >= 400 ? 1 : length == answer.headers['content-length'] ? 0 : 3));
}).on('error', fail);
