{{/*
Values: the defaults of the personality (defaults/*.yaml), overridden by the user's values as Helm merges them.
They are not in values.yaml, because the originals' charts have different defaults for the same keys.
*/}}

{{/* Fills the empty dictionary `into` with the context of all other templates, whose Values are complete. Takes also `from`, the root. */}}
{{- define "kstatd.load" -}}
{{- $into := .into -}}
{{- $from := .from -}}
{{- range list "Release" "Chart" "Files" "Capabilities" "Template" -}}
{{- $_ := set $into . (index $from .) -}}
{{- end -}}
{{- $personality := $from.Values.personality | default "run" -}}
{{- $personalities := list "run" "kube-state-metrics" "statsd_exporter" -}}
{{- if not (has $personality $personalities) -}}
{{- fail (printf "personality: %v is not one of %s" $personality (join ", " $personalities)) -}}
{{- end -}}
{{- $values := $from.Files.Get (printf "defaults/%s.yaml" $personality) | fromYaml -}}
{{- $_ := set $into "ownImage" (deepCopy $values.image) -}}
{{- $given := omit $from.Values "personality" "enabled" -}}
{{- $found := dict "unknown" list "given" list -}}
{{- include "kstatd.merge" (dict "into" $values "given" $given "path" "" "found" $found) -}}
{{- with $found.unknown -}}
{{- $problems := list -}}
{{- range . -}}
{{- $problems = append $problems (include "kstatd.unknown" (dict "path" . "personality" $personality "from" $from "personalities" $personalities)) -}}
{{- end -}}
{{- fail (join "\n" $problems) -}}
{{- end -}}
{{- $_ := set $values "personality" $personality -}}
{{- $_ := set $into "Values" $values -}}
{{- $_ := set $into "given" $found.given -}}
{{- end -}}

{{/* Merges `given` over `into`; lists in `found` the paths that are given, and those that the defaults do not know. */}}
{{- define "kstatd.merge" -}}
{{- $free := list "securityContext." "containerSecurityContext." "resources." "nodeSelector." "global." "prometheus.dashboards.labels." -}}
{{- $closed := and (gt (len .into) 0) (not (has .path $free)) -}}
{{- $into := .into -}}
{{- $path := .path -}}
{{- $found := .found -}}
{{- range $key, $value := .given -}}
{{- $default := index $into $key -}}
{{- if and $closed (not (hasKey $into $key)) -}}
{{- $_ := set $found "unknown" (append $found.unknown (print $path $key)) -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $default) -}}
{{- include "kstatd.merge" (dict "into" $default "given" $value "path" (print $path $key ".") "found" $found) -}}
{{- else if and (kindIs "map" $default) (kindIs "invalid" $value) -}}
{{- $_ := set $into $key dict -}}
{{- else if and (kindIs "map" $default) $default $value -}}
{{- fail (printf "%s%s: a %s, where the keys %s belong" $path $key (kindOf $value) (keys $default | sortAlpha | join ", ")) -}}
{{- else if not (and (kindIs "map" $default) (not $value)) -}}
{{- $_ := set $into $key $value -}}
{{- end -}}
{{- if not (kindIs "map" $value) -}}
{{- $_ := set $found "given" (append $found.given (print $path $key)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Appends the dotted paths of all keys below `of` to the list `paths` of `into`. */}}
{{- define "kstatd.paths" -}}
{{- $path := .path -}}
{{- $into := .into -}}
{{- range $key, $value := .of -}}
{{- $_ := set $into "paths" (append $into.paths (print $path $key)) -}}
{{- if kindIs "map" $value -}}
{{- include "kstatd.paths" (dict "of" $value "path" (print $path $key ".") "into" $into) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The message for an unknown key: whose it is, or the known key whose name shares the most pairs of letters with it. */}}
{{- define "kstatd.unknown" -}}
{{- $path := .path -}}
{{- $from := .from -}}
{{- $own := dict "paths" list -}}
{{- $others := list -}}
{{- range $personality := .personalities -}}
{{- $tree := $from.Files.Get (printf "defaults/%s.yaml" $personality) | fromYaml -}}
{{- if eq $personality $.personality -}}
{{- include "kstatd.paths" (dict "of" $tree "path" "" "into" $own) -}}
{{- else -}}
{{- $paths := dict "paths" list -}}
{{- include "kstatd.paths" (dict "of" $tree "path" "" "into" $paths) -}}
{{- if has $path $paths.paths -}}
{{- $others = append $others $personality -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $best := "" -}}
{{- $score := 0 -}}
{{- $wanted := include "kstatd.letters" $path -}}
{{- range $candidate := $own.paths -}}
{{- $letters := include "kstatd.letters" $candidate -}}
{{- $common := 0 -}}
{{- /* Equal last parts count as well: the key may stand at the wrong level. */ -}}
{{- if eq (splitList "." $path | last) (splitList "." $candidate | last) -}}
{{- $common = div (len $wanted) 2 -}}
{{- end -}}
{{- range $i := until (sub (len $wanted) 1 | int) -}}
{{- if contains (substr $i (add $i 2 | int) $wanted) $letters -}}
{{- $common = add1 $common -}}
{{- end -}}
{{- end -}}
{{- $points := div (mul 2000 $common) (max 1 (sub (add (len $wanted) (len $letters)) 2)) | int -}}
{{- if gt $points $score -}}
{{- $best = $candidate -}}
{{- $score = $points -}}
{{- end -}}
{{- end -}}
{{- printf "%s: unknown value of personality %s" $path .personality -}}
{{- if and $others (lt $score 800) }}; it belongs to {{ join " and " $others }}{{ else if ge $score 600 }}; did you mean {{ $best }}?{{ end -}}
{{- end -}}

{{- define "kstatd.letters" -}}
{{- regexReplaceAll "[^a-z0-9]" (lower .) "" -}}
{{- end -}}
