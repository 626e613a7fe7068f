<?php
// One GET by streams: fetch.php HOST PORT. Exit codes as of fetch.py.
$body = file_get_contents("http://$argv[1]:$argv[2]/");
if ($body === false)
	exit(1);
foreach ($http_response_header as $line)
	if (preg_match('/^Content-Length: (\d+)/i', $line, $match) && strlen($body) != $match[1])
		exit(3);
