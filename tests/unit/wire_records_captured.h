/* Exchanges captured from Debian's redis-server 7.0.15 (RESP2, RESP3) and PostgreSQL 15.18 (psql, pgbench; SCRAM). */
#ifndef RESIL_TESTS_WIRE_RECORDS_CAPTURED_H
#define RESIL_TESTS_WIRE_RECORDS_CAPTURED_H

#include <stdbool.h>
#include <stddef.h>

struct turn {
	bool is_sent;
	const char *bytes;
	size_t n;
	size_t whole_at; /* received: behind this octet the answer is whole */
};

/* clang-format off */
#define SENT(s) {true, s, sizeof s - 1, 0}
#define RECEIVED(s) {false, s, sizeof s - 1, sizeof s - 1}
#define RECEIVED_EARLY(at, s) {false, s, sizeof s - 1, at}

static const struct turn redis_2[] = {
	SENT("*1\r\n$4\r\nPING\r\n"),
	RECEIVED("+PONG\r\n"),
	SENT("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$40\r\nvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\r\n"),
	RECEIVED("+OK\r\n"),
	SENT("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
	RECEIVED("$40\r\nvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\r\n"),
	SENT("*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n"),
	RECEIVED("$-1\r\n"),
	SENT("*1\r\n$6\r\nNOSUCH\r\n"),
	RECEIVED("-ERR unknown command 'NOSUCH', with args beginning with: \r\n"),
	SENT("*5\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$1\r\na\r\n$0\r\n\r\n$1\r\nc\r\n*4\r\n$6\r\nLRANGE\r\n$1\r\nl\r\n$1\r"
		"\n0\r\n$2\r\n-1\r\n*2\r\n$4\r\nLLEN\r\n$1\r\nl\r\n"),
	RECEIVED(":3\r\n*3\r\n$1\r\na\r\n$0\r\n\r\n$1\r\nc\r\n:3\r\n"),
	SENT("*3\r\n$4\r\nEVAL\r\n$56\r\nreturn {1,{2,{},\"x\\r\\ny\"},false,redis.status_reply(\"s\")}\r\n$1\r\n0\r"
		"\n"),
	RECEIVED("*4\r\n:1\r\n*3\r\n:2\r\n*0\r\n$4\r\nx\r\ny\r\n$-1\r\n+s\r\n"),
	SENT("*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*4\r\n$4\r\nHSET\r\n$1\r\nh\r\n$1\r\nf\r\n$1\r\n1"
		"\r\n*1\r\n$4\r\nEXEC\r\n"),
	RECEIVED("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:1\r\n"),
	SENT("*3\r\n$5\r\nBLPOP\r\n$6\r\nnolist\r\n$3\r\n0.1\r\n"),
	RECEIVED("*-1\r\n"),
	SENT("*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$2\r\nme\r\n"),
	RECEIVED("+OK\r\n"),
};

static const struct turn redis_3[] = {
	SENT("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"),
	RECEIVED("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r"
		"\n:5\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"),
	SENT("*2\r\n$7\r\nHGETALL\r\n$1\r\nh\r\n"),
	RECEIVED("%1\r\n$1\r\nf\r\n$1\r\n1\r\n"),
	SENT("*4\r\n$4\r\nSADD\r\n$1\r\ns\r\n$1\r\na\r\n$1\r\nb\r\n*2\r\n$8\r\nSMEMBERS\r\n$1\r\ns\r\n"),
	RECEIVED(":2\r\n~2\r\n$1\r\na\r\n$1\r\nb\r\n"),
	SENT("*4\r\n$4\r\nZADD\r\n$1\r\nz\r\n$3\r\n1.5\r\n$1\r\nm\r\n*3\r\n$6\r\nZSCORE\r\n$1\r\nz\r\n$1\r\nm\r\n"),
	RECEIVED(":1\r\n,1.5\r\n"),
	SENT("*3\r\n$5\r\nDEBUG\r\n$8\r\nPROTOCOL\r\n$6\r\nattrib\r\n"),
	RECEIVED("-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run i"
		"t from a local connection, otherwise you need to set this option in the configuration file, and then "
		"restart the server.\r\n"),
	SENT("*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n"),
	RECEIVED("_\r\n"),
	SENT("*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
	RECEIVED("+OK\r\n$40\r\nvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\r\n"),
	SENT("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n2\r\n"),
	RECEIVED_EARLY(5, "+OK\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"),
	SENT("*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$3\r\nOFF\r\n"),
	RECEIVED("+OK\r\n"),
	SENT("*3\r\n$4\r\nEVAL\r\n$86\r\nredis.setresp(3); return {big_number=redis.REDIS_VERSION and \"12345678901"
		"234567890\", }\r\n$1\r\n0\r\n"),
	RECEIVED("(12345678901234567890\r\n"),
	SENT("*3\r\n$4\r\nEVAL\r\n$42\r\nreturn {big_number=\"12345678901234567890\"}\r\n$1\r\n0\r\n"),
	RECEIVED("(12345678901234567890\r\n"),
	SENT("*3\r\n$4\r\nEVAL\r\n$20\r\nreturn {double=3.25}\r\n$1\r\n0\r\n"),
	RECEIVED(",3.25\r\n"),
	SENT("*3\r\n$4\r\nEVAL\r\n$51\r\nredis.setresp(3); return redis.call(\"SMEMBERS\",\"s\")\r\n$1\r\n0\r\n"),
	RECEIVED("~2\r\n$1\r\na\r\n$1\r\nb\r\n"),
	SENT("*3\r\n$6\r\nLOLWUT\r\n$7\r\nVERSION\r\n$1\r\n9\r\n"),
	RECEIVED("=22\r\ntxt:Redis ver. 7.0.15\n\r\n"),
};

static const struct turn psql[] = {
	SENT("\000\000\000\010\004\322\026/"),
	RECEIVED("N"),
	SENT("\000\000\000\077\000\003\000\000user\000postgres\000database\000postgres\000application_name\000psql\000"
		"\000"),
	RECEIVED("R\000\000\000\027\000\000\000\nSCRAM-SHA-256\000\000"),
	SENT("p\000\000\0006SCRAM-SHA-256\000\000\000\000 n,,n=,r=xcD5jQkUqXydi7+X2DAJwlUd"),
	RECEIVED("R\000\000\000\\\000\000\000\013r=xcD5jQkUqXydi7+X2DAJwlUdJ3YSZcv4pjt6NnFxByqXcSeS,s=S2Snehey77aq3u1EB"
		"mBCLg==,i=4096"),
	SENT("p\000\000\000lc=biws,r=xcD5jQkUqXydi7+X2DAJwlUdJ3YSZcv4pjt6NnFxByqXcSeS,p=mY/lfoCONTc8PMtal98T68zrWEQ"
		"Jpg6n3ktIIQ483FY="),
	RECEIVED("R\000\000\0006\000\000\000\014v=huaHOr9agqbmvs1HX9A9UK3nEAfgyKf3kjuRYZt0LK8=R\000\000\000\010\000\000"
		"\000\000S\000\000\000\032application_name\000psql\000S\000\000\000\031client_encoding\000UTF8\000S\000"
		"\000\000\027DateStyle\000ISO, MDY\000S\000\000\000&default_transaction_read_only\000off\000S\000\000\000"
		"\027in_hot_standby\000off\000S\000\000\000\031integer_datetimes\000on\000S\000\000\000\033IntervalSty"
		"le\000postgres\000S\000\000\000\024is_superuser\000on\000S\000\000\000\031server_encoding\000UTF8\000"
		"S\000\000\0002server_version\00015.18 (Debian 15.18-0+deb12u1)\000S\000\000\000#session_authorization"
		"\000postgres\000S\000\000\000#standard_conforming_strings\000on\000S\000\000\000\025TimeZone\000Etc/U"
		"TC\000K\000\000\000\014\000\000r\353\254\322R\356Z\000\000\000\005I"),
	SENT("Q\000\000\000!CREATE TABLE t(a int,b text)\000"),
	RECEIVED("C\000\000\000\021CREATE TABLE\000Z\000\000\000\005I"),
	SENT("Q\000\000\000\030COPY  t FROM STDIN \000"),
	RECEIVED("G\000\000\000\013\000\000\002\000\000\000\000"),
	SENT("d\000\000\000\0141\011a\n2\011b\nc\000\000\000\004"),
	RECEIVED("C\000\000\000\013COPY 2\000Z\000\000\000\005I"),
	SENT("Q\000\000\000\024SELECT * FROM t\000"),
	RECEIVED("T\000\000\000.\000\002a\000\000\000@\000\000\001\000\000\000\027\000\004\377\377\377\377\000\000b\000"
		"\000\000@\000\000\002\000\000\000\031\377\377\377\377\377\377\000\000D\000\000\000\020\000\002\000\000"
		"\000\0011\000\000\000\001aD\000\000\000\020\000\002\000\000\000\0012\000\000\000\001bC\000\000\000\rS"
		"ELECT 2\000Z\000\000\000\005I"),
	SENT("Q\000\000\000\017SELECT 1/0\000"),
	RECEIVED("E\000\000\000ASERROR\000VERROR\000C22012\000Mdivision by zero\000Fint.c\000L869\000Rint4div\000\000Z\000"
		"\000\000\005I"),
	SENT("Q\000\000\000(DO $$BEGIN RAISE NOTICE 'hi'; END$$\000"),
	RECEIVED("N\000\000\000wSNOTICE\000VNOTICE\000C00000\000Mhi\000WPL/pgSQL function inline_code_block line 1 at R"
		"AISE\000Fpl_exec.c\000L3891\000Rexec_stmt_raise\000\000C\000\000\000\007DO\000Z\000\000\000\005I"),
	SENT("Q\000\000\000\rLISTEN x\000"),
	RECEIVED("C\000\000\000\013LISTEN\000Z\000\000\000\005I"),
	SENT("Q\000\000\000\rNOTIFY x\000"),
	RECEIVED("C\000\000\000\013NOTIFY\000A\000\000\000\013\000\000r\353x\000\000Z\000\000\000\005I"),
	SENT("Q\000\000\000\027SELECT 1; SELECT 2\000"),
	RECEIVED("T\000\000\000!\000\001\077column\077\000\000\000\000\000\000\000\000\000\000\027\000\004\377\377\377\377"
		"\000\000D\000\000\000\013\000\001\000\000\000\0011C\000\000\000\rSELECT 1\000T\000\000\000!\000\001\077"
		"column\077\000\000\000\000\000\000\000\000\000\000\027\000\004\377\377\377\377\000\000D\000\000\000\013"
		"\000\001\000\000\000\0012C\000\000\000\rSELECT 1\000Z\000\000\000\005I"),
	SENT("Q\000\000\000\027COPY  t TO STDOUT \000"),
	RECEIVED("H\000\000\000\013\000\000\002\000\000\000\000d\000\000\000\0101\011a\nd\000\000\000\0102\011b\nc\000\000"
		"\000\004C\000\000\000\013COPY 2\000Z\000\000\000\005I"),
	SENT("Q\000\000\000\005\000"),
	RECEIVED("I\000\000\000\004Z\000\000\000\005I"),
	SENT("X\000\000\000\004"),
};

static const struct turn psql_refused[] = {
	SENT("\000\000\000\010\004\322\026/"),
	RECEIVED("N"),
	SENT("\000\000\000\077\000\003\000\000user\000postgres\000database\000postgres\000application_name\000psql\000"
		"\000"),
	RECEIVED("R\000\000\000\027\000\000\000\nSCRAM-SHA-256\000\000"),
	SENT("p\000\000\0006SCRAM-SHA-256\000\000\000\000 n,,n=,r=2E8AAzBmhIdRzKxa7TOvSdQN"),
	RECEIVED("R\000\000\000\\\000\000\000\013r=2E8AAzBmhIdRzKxa7TOvSdQN2HDayT8R7jaJNRTF6XOsm3Gm,s=S2Snehey77aq3u1EB"
		"mBCLg==,i=4096"),
	SENT("p\000\000\000lc=biws,r=2E8AAzBmhIdRzKxa7TOvSdQN2HDayT8R7jaJNRTF6XOsm3Gm,p=tduTht6yKdm8kzaWJy20qvOKHrV"
		"+Ov51f0SdcnGAKqU="),
	RECEIVED("E\000\000\000hSFATAL\000VFATAL\000C28P01\000Mpassword authentication failed for user \"postgres\"\000"
		"Fauth.c\000L334\000Rauth_failed\000\000"),
};

static const struct turn pgbench_extended[] = {
	SENT("\000\000\000\010\004\322\026/"),
	RECEIVED("N"),
	SENT("\000\000\000B\000\003\000\000user\000postgres\000database\000postgres\000application_name\000pgbench\000"
		"\000"),
	RECEIVED("R\000\000\000\027\000\000\000\nSCRAM-SHA-256\000\000"),
	SENT("p\000\000\0006SCRAM-SHA-256\000\000\000\000 n,,n=,r=DOzRiw4WdUPMvVpGxAxG6L8m"),
	RECEIVED("R\000\000\000\\\000\000\000\013r=DOzRiw4WdUPMvVpGxAxG6L8muHn03GNwQa5Q0CXxHbcHUr09,s=S2Snehey77aq3u1EB"
		"mBCLg==,i=4096"),
	SENT("p\000\000\000lc=biws,r=DOzRiw4WdUPMvVpGxAxG6L8muHn03GNwQa5Q0CXxHbcHUr09,p=kSP3d7v6cNaaHT07EFFmsjnWqO9"
		"GTFU2gxz/kxUQSiE="),
	RECEIVED("R\000\000\0006\000\000\000\014v=bXt3HCPP1atbeqxHEGI3pVMdjK4C4KleDB1yNreNfqQ=R\000\000\000\010\000\000"
		"\000\000S\000\000\000\035application_name\000pgbench\000S\000\000\000\031client_encoding\000UTF8\000S"
		"\000\000\000\027DateStyle\000ISO, MDY\000S\000\000\000&default_transaction_read_only\000off\000S\000\000"
		"\000\027in_hot_standby\000off\000S\000\000\000\031integer_datetimes\000on\000S\000\000\000\033Interva"
		"lStyle\000postgres\000S\000\000\000\024is_superuser\000on\000S\000\000\000\031server_encoding\000UTF8"
		"\000S\000\000\0002server_version\00015.18 (Debian 15.18-0+deb12u1)\000S\000\000\000#session_authoriza"
		"tion\000postgres\000S\000\000\000#standard_conforming_strings\000on\000S\000\000\000\025TimeZone\000E"
		"tc/UTC\000K\000\000\000\014\000\000s%\273\002\211\215Z\000\000\000\005I"),
	SENT("P\000\000\000\023\000SELECT 1+1;\000\000\000B\000\000\000\016\000\000\000\000\000\000\000\001\000\000"
		"D\000\000\000\006P\000E\000\000\000\011\000\000\000\000\000P\000\000\000\021\000SELECT 2;\000\000\000"
		"B\000\000\000\016\000\000\000\000\000\000\000\001\000\000D\000\000\000\006P\000E\000\000\000\011\000\000"
		"\000\000\000S\000\000\000\004"),
	RECEIVED("1\000\000\000\0042\000\000\000\004T\000\000\000!\000\001\077column\077\000\000\000\000\000\000\000\000"
		"\000\000\027\000\004\377\377\377\377\000\000D\000\000\000\013\000\001\000\000\000\0012C\000\000\000\r"
		"SELECT 1\0001\000\000\000\0042\000\000\000\004T\000\000\000!\000\001\077column\077\000\000\000\000\000"
		"\000\000\000\000\000\027\000\004\377\377\377\377\000\000D\000\000\000\013\000\001\000\000\000\0012C\000"
		"\000\000\rSELECT 1\000Z\000\000\000\005I"),
	SENT("X\000\000\000\004"),
};

static const struct turn pgbench_prepared[] = {
	SENT("\000\000\000\010\004\322\026/"),
	RECEIVED("N"),
	SENT("\000\000\000B\000\003\000\000user\000postgres\000database\000postgres\000application_name\000pgbench\000"
		"\000"),
	RECEIVED("R\000\000\000\027\000\000\000\nSCRAM-SHA-256\000\000"),
	SENT("p\000\000\0006SCRAM-SHA-256\000\000\000\000 n,,n=,r=LBcEXVc35fBMgrr4etzGTnWc"),
	RECEIVED("R\000\000\000\\\000\000\000\013r=LBcEXVc35fBMgrr4etzGTnWcA8EbWPEGs2HpGijvBRKICfyU,s=S2Snehey77aq3u1EB"
		"mBCLg==,i=4096"),
	SENT("p\000\000\000lc=biws,r=LBcEXVc35fBMgrr4etzGTnWcA8EbWPEGs2HpGijvBRKICfyU,p=E8LeizxTrcbwnVgMROtZr00AawV"
		"dLjld3yET1um3dQc="),
	RECEIVED("R\000\000\0006\000\000\000\014v=pWRmJSFWCLzovBL/CAgCfxreG/NtSnZ+MOEk46lwAW8=R\000\000\000\010\000\000"
		"\000\000S\000\000\000\035application_name\000pgbench\000S\000\000\000\031client_encoding\000UTF8\000S"
		"\000\000\000\027DateStyle\000ISO, MDY\000S\000\000\000&default_transaction_read_only\000off\000S\000\000"
		"\000\027in_hot_standby\000off\000S\000\000\000\031integer_datetimes\000on\000S\000\000\000\033Interva"
		"lStyle\000postgres\000S\000\000\000\024is_superuser\000on\000S\000\000\000\031server_encoding\000UTF8"
		"\000S\000\000\0002server_version\00015.18 (Debian 15.18-0+deb12u1)\000S\000\000\000#session_authoriza"
		"tion\000postgres\000S\000\000\000#standard_conforming_strings\000on\000S\000\000\000\025TimeZone\000E"
		"tc/UTC\000K\000\000\000\014\000\000sG}\0379\033Z\000\000\000\005I"),
	SENT("P\000\000\000\026P_0\000SELECT 1+1;\000\000\000S\000\000\000\004"),
	RECEIVED("1\000\000\000\004Z\000\000\000\005I"),
	SENT("B\000\000\000\021\000P_0\000\000\000\000\000\000\001\000\000D\000\000\000\006P\000E\000\000\000\011\000"
		"\000\000\000\000S\000\000\000\004"),
	RECEIVED("2\000\000\000\004T\000\000\000!\000\001\077column\077\000\000\000\000\000\000\000\000\000\000\027\000"
		"\004\377\377\377\377\000\000D\000\000\000\013\000\001\000\000\000\0012C\000\000\000\rSELECT 1\000Z\000"
		"\000\000\005I"),
	SENT("P\000\000\000\024P_1\000SELECT 2;\000\000\000S\000\000\000\004"),
	RECEIVED("1\000\000\000\004Z\000\000\000\005I"),
	SENT("B\000\000\000\021\000P_1\000\000\000\000\000\000\001\000\000D\000\000\000\006P\000E\000\000\000\011\000"
		"\000\000\000\000S\000\000\000\004"),
	RECEIVED("2\000\000\000\004T\000\000\000!\000\001\077column\077\000\000\000\000\000\000\000\000\000\000\027\000"
		"\004\377\377\377\377\000\000D\000\000\000\013\000\001\000\000\000\0012C\000\000\000\rSELECT 1\000Z\000"
		"\000\000\005I"),
	SENT("X\000\000\000\004"),
};
/* clang-format on */

#endif
