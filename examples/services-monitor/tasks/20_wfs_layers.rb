#!/usr/bin/ruby
# How many layers a service has.
_name, _owner, type, address = $stdin.gets.split
text = IO.popen(["curl", "-fsS", "--max-time", "30", "#{address}?service=#{type}&request=GetCapabilities"], &:read)
abort "curl: #{$?}" unless $?.success?
layers = text.scan(type == "WFS" ? "<FeatureType>" : "<Layer>").size
puts layers.zero? ? "error there is no layer" : "ok #{layers} layers"
