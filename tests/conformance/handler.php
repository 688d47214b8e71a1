<?php
// Includes the script that a request names, as a handler of a worker script does, and as the ordinary script does for comparison.
function handle_request(): void
{
    include $_SERVER['TEST_SCRIPT'];
}
