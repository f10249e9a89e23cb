local g = import '../../mixin/grafana.libsonnet';
local pack = (import '../pack.libsonnet')('cert-manager', 'cert-manager');

local prefix = 'kube_customresource_';
local object = 'cluster, namespace, certificate';
local of(metric, by=object) = 'max by (%s) (%s%s)' % [by, prefix, metric];
local resource = 'Certificate {{ $labels.namespace }}/{{ $labels.certificate }}';
local here = 'cluster=~"$cluster",namespace=~"$namespace"';
local everywhere = 'cluster=~"$cluster"';
local request = 'cluster, namespace, certificaterequest, certificate';
// Orders and challenges without a state have not been started.
local open(kind, by) = '(%s unless %s == 1)' % [of(kind + '_info', by), of(kind + '_status_state{state=~"valid|invalid|expired|errored"}', by)];

{
  alerts: pack.alerts([
    pack.alert(
      'CertManagerCertificateExpiring',
      'critical',
      '15m',
      |||
        %(after)s - time()
          < 0.1 * (%(after)s - %(before)s)
          unless
        %(renewal)s > time()
      ||| % {
        after: of('certificate_status_not_after_timestamp_seconds'),
        before: of('certificate_status_not_before_timestamp_seconds'),
        renewal: of('certificate_status_renewal_timestamp_seconds'),
      },
      'A certificate expires and is not renewed.',
      resource + ' has {{ $value | humanizeDuration }} left, less than a tenth of its lifetime, and its renewal is overdue.',
    ),
    pack.alert(
      'CertManagerCertificateNotReady',
      'warning',
      '30m',
      of('certificate_status_condition{condition="Ready"}') + ' == 0',
      'A Certificate is not ready.',
      resource + ' has not been ready for 30 minutes: its Secret has no valid certificate for the specification.',
    ),
    pack.alert(
      'CertManagerIssuanceFailing',
      'warning',
      '0m',
      of('certificate_status_failed_issuance_attempts') + ' >= 3',
      'Certificates cannot be issued.',
      resource + ': {{ $value }} attempts to issue it have failed.',
    ),
    pack.alert(
      'CertManagerIssuerNotReady',
      'warning',
      '15m',
      '%s == 0\n  or\n%s == 0' % [
        of('issuer_status_condition{condition="Ready"}', 'cluster, namespace, issuer'),
        of('clusterissuer_status_condition{condition="Ready"}', 'cluster, clusterissuer'),
      ],
      'An issuer is not ready.',
      '{{ with $labels.clusterissuer }}ClusterIssuer {{ . }}{{ else }}Issuer {{ $labels.namespace }}/{{ $labels.issuer }}{{ end }} has not been ready for 15 minutes.',
    ),
    pack.alert(
      'CertManagerRequestNotApproved',
      'warning',
      '30m',
      '%s\n  unless\n%s == 1' % [
        of('certificaterequest_info', request),
        of('certificaterequest_status_condition{condition=~"Approved|Denied"}', request),
      ],
      'Nobody has approved or denied a CertificateRequest.',
      'CertificateRequest {{ $labels.namespace }}/{{ $labels.certificaterequest }} has waited for approval for 30 minutes.',
    ),
    pack.alert(
      'CertManagerChallengePending',
      'warning',
      '1h',
      open('challenge', 'cluster, namespace, challenge, dns_name'),
      'An ACME challenge is not answered.',
      'Challenge {{ $labels.namespace }}/{{ $labels.challenge }} for {{ $labels.dns_name }} has been open for an hour.',
    ),
    pack.alert(
      'CertManagerOrderFailed',
      'warning',
      '0m',
      |||
        %s == 1
          and
        time() - %s < 3600
      ||| % [
        of('order_status_state{state=~"invalid|expired|errored"}', 'cluster, namespace, order'),
        of('order_status_failure_timestamp_seconds', 'cluster, namespace, order'),
      ],
      'An ACME order failed.',
      'Order {{ $labels.namespace }}/{{ $labels.order }} failed within the last hour.',
    ),
  ]),

  dashboard: pack.dashboard(
    'Certificates, when they expire, and what is on the way to new ones.',
    prefix + 'certificate_info',
    [{ name: 'namespace', label: 'namespace', title: 'Namespace' }],
    local left = 'min by (namespace, certificate) (%scertificate_status_not_after_timestamp_seconds{%s}) - time()' % [prefix, here];
    local state(kind) = 'sum by (state) (%s%s_status_state{%s})' % [prefix, kind, here];
    [
      g.number('Certificates', 'count(%scertificate_info{%s})' % [prefix, here]),
      g.number('Not ready', 'count(%scertificate_status_condition{%s,condition="Ready"} == 0) or vector(0)' % [prefix, here], thresholds=[1, 10]),
      g.number('Expired', 'count(%s <= 0) or vector(0)' % left, thresholds=[1]),
      g.number('Next expiry', 'min(%s > 0)' % left, unit='s', thresholds=[604800], lowIsBad=true),
      g.number('Failing', 'count(%scertificate_status_failed_issuance_attempts{%s} > 0) or vector(0)' % [prefix, here], thresholds=[1, 10]),
      g.number('Issuers not ready', 'count(%(p)sissuer_status_condition{%(h)s,condition="Ready"} == 0 or %(p)sclusterissuer_status_condition{%(e)s,condition="Ready"} == 0) or vector(0)' % { p: prefix, h: here, e: everywhere }, thresholds=[1]),
      g.plot('Time to expiry', [g.query(left, '{{namespace}}/{{certificate}}')], unit='s'),
      g.plot('Time to renewal', [g.query('min by (namespace, certificate) (%scertificate_status_renewal_timestamp_seconds{%s}) - time()' % [prefix, here], '{{namespace}}/{{certificate}}')], unit='s'),
      g.plot('Orders by state', [g.query(state('order'), '{{state}}')], stacked=true),
      g.plot('Challenges by state', [g.query(state('challenge'), '{{state}}')], stacked=true),
      g.table('Certificates by issuer', 'count by (issuer_kind, issuer_name) (%scertificate_info{%s})' % [prefix, here]),
      g.table('Failed attempts', 'max by (namespace, certificate) (%scertificate_status_failed_issuance_attempts{%s})' % [prefix, here]),
      g.table('Conditions of requests', 'sum by (namespace, condition) (%scertificaterequest_status_condition{%s})' % [prefix, here], description='Requests whose condition is True.'),
      g.table('Open challenges', 'max by (namespace, challenge, dns_name, state) (%schallenge_status_state{%s} == 1)' % [prefix, here]),
    ],
  ),
}
