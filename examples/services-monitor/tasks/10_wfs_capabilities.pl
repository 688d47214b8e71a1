#!/usr/bin/perl
# Whether a service says what it can do.
use strict;
use warnings;

my ($name, $owner, $type, $address) = split ' ', scalar <STDIN>;
open my $answer, '-|', 'curl', '-fsS', '--max-time', '30', "$address?service=$type&request=GetCapabilities" or die;
my $text = do { local $/; <$answer> } // '';
close $answer or die "curl: $?\n";
print $text =~ /<${type}_Capabilities[^>]*version="([^"]+)"/ ? "ok version $1\n" : "warning there is no version\n";
