<?php
// One GET by streams: fetch.php HOST PORT [CERTIFICATE]. Exit codes as of fetch.py.
$scheme = isset($argv[3]) ? 'https' : 'http';
$body = file_get_contents("$scheme://$argv[1]:$argv[2]/", false, stream_context_create(['ssl' => ['cafile' => $argv[3] ?? null]]));
if ($body === false)
	exit(1);
foreach ($http_response_header as $line)
	if (preg_match('/^Content-Length: (\d+)/i', $line, $match) && strlen($body) != $match[1])
		exit(3);
