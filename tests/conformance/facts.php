<?php
// What forkyard says of the workers of a worker script.
echo json_encode(forkyard_worker());
