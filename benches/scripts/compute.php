<?php
// What applications spend their time on, without waiting for anything: objects, arrays, text, numbers.
final class Item
{
    public function __construct(public readonly int $id, public readonly string $name, public readonly float $price)
    {
    }

    public function total(float $rate): float
    {
        return round($this->price * (1 + $rate), 2);
    }
}

$items = [];
$seed = 42;
for ($i = 0; $i < 1500; $i++) {
    $seed = ($seed * 1103515245 + 12345) & 0x7fffffff;
    $items[] = new Item($i, 'item ' . dechex($seed), $seed / 65536);
}
usort($items, fn (Item $a, Item $b) => $a->price <=> $b->price ?: strcmp($a->name, $b->name));
$rows = array_map(fn (Item $item) => ['id' => $item->id, 'name' => $item->name, 'total' => $item->total(0.19)], $items);
$again = json_decode(json_encode($rows), true);

$html = '';
foreach ($again as $row) {
    $html .= sprintf("<tr><td>%d</td><td>%s</td><td>%.2f</td></tr>\n", $row['id'], htmlspecialchars($row['name']), $row['total']);
}
$words = array_count_values(preg_split('/[^a-z0-9]+/', strtolower($html)));
arsort($words);

$sieve = array_fill(2, 8000, true);
for ($i = 2; $i * $i <= 8000; $i++) {
    if ($sieve[$i]) {
        for ($j = $i * $i; $j <= 8000; $j += $i) {
            $sieve[$j] = false;
        }
    }
}
echo md5($html), ' ', count($words), ' ', count(array_filter($sieve)), "\n";
