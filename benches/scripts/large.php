<?php
echo str_repeat("0123456789abcdef", 65536);
