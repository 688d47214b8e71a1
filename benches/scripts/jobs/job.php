<?php
$payload = json_decode(file_get_contents("php://input"), true);
switch ($_SERVER["FORKYARD_JOB_KIND"]) {
    case "empty":
        break;
    // Says when it started, and sleeps.
    case "sleep":
        printf("%.6f", $_SERVER["REQUEST_TIME_FLOAT"]);
        $end = hrtime(true) + (int) ($payload["ms"] * 1e6);
        while (($left = $end - hrtime(true)) > 0) {
            usleep(intdiv($left, 1000) + 1);
        }
        break;
    // Computes.
    case "spin":
        $end = hrtime(true) + (int) ($payload["ms"] * 1e6);
        while (hrtime(true) < $end) {
            md5($end);
        }
        break;
}
