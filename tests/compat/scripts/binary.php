<?php
passthru(escapeshellarg(PHP_BINARY) . ' -r ' . escapeshellarg('echo PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION, " ", PHP_SAPI, "\n";'));
