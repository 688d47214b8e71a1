<?php
$handler = function () {
    echo 'Hello';
};
while (forkyard_handle_request($handler));
