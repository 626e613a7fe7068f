// One GET: fetch.js HOST PORT. Exit codes as of fetch.py.
const fail = e => {
	console.error(e.code, e.message);
	process.exit(1);
};
require('http').get({host: process.argv[2], port: process.argv[3]}, answer => {
	let length = 0;
	answer.on('data', piece => length += piece.length);
	answer.on('error', fail);
	answer.on('end', () => process.exit(answer.statusCode >= 400 ? 1 : length == answer.headers['content-length'] ? 0 : 3));
}).on('error', fail);
