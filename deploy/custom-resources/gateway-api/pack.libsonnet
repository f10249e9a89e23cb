local g = import '../../mixin/grafana.libsonnet';
local pack = (import '../pack.libsonnet')('gateway-api', 'Gateway API');

local object = 'cluster, customresource_kind, namespace, name';
local resource = '{{ $labels.customresource_kind }} {{ $labels.namespace }}/{{ $labels.name }}';
local parent = object + ', controller_name, parent_kind, parent_namespace, parent_name, parent_section_name, parent_port';
local ofParent = ' at {{ $labels.parent_kind }} {{ $labels.parent_namespace }}/{{ $labels.parent_name }}';

// A metric of listeners, of all kinds that have them; of routes, of all kinds.
local listeners(metric, here='') = '{__name__=~"gatewayapi_(gateway|listenerset)_%s"%s}' % [metric, here];
local routes(metric, here='') = '{__name__=~"gatewayapi_(http|grpc|tls|tcp|udp)route_%s"%s}' % [metric, here];
local isFalse(labels, metric) = 'min by (%s) (%s) == 0' % [labels, metric];
local here = 'cluster=~"$cluster",namespace=~"$namespace"';

{
  alerts: pack.alerts([
    pack.alert(
      'GatewayApiClassNotAccepted',
      'warning',
      '15m',
      isFalse('cluster, name', 'gatewayapi_gatewayclass_status{type="Accepted"}'),
      'No controller accepts a GatewayClass.',
      'GatewayClass {{ $labels.name }} has not been accepted for 15 minutes; its gateways do not work.',
    ),
    pack.alert(
      'GatewayApiGatewayNotProgrammed',
      'critical',
      '10m',
      isFalse(object, 'gatewayapi_gateway_status{type="Programmed"}'),
      'A Gateway is not programmed.',
      resource + ' has not been programmed into the data plane for 10 minutes.',
    ),
    pack.alert(
      'GatewayApiListenerNotProgrammed',
      'warning',
      '10m',
      isFalse(object + ', listener_name', listeners('status_listener_programmed')),
      'A listener is not programmed.',
      'Listener {{ $labels.listener_name }} of ' + resource + ' has not been programmed into the data plane for 10 minutes.',
    ),
    pack.alert(
      'GatewayApiListenerRefsUnresolved',
      'warning',
      '10m',
      isFalse(object + ', listener_name', listeners('status_listener_resolved_refs')),
      'A listener refers to something that is missing.',
      'Listener {{ $labels.listener_name }} of ' + resource + ' has had an unresolved reference, such as its certificate, for 10 minutes.',
    ),
    pack.alert(
      'GatewayApiRouteNotAccepted',
      'warning',
      '10m',
      isFalse(parent, routes('status_parent_accepted')),
      'A route is not accepted.',
      resource + ' has not been accepted' + ofParent + ' for 10 minutes.',
    ),
    pack.alert(
      'GatewayApiRouteRefsUnresolved',
      'warning',
      '10m',
      isFalse(parent, routes('status_parent_resolved_refs')),
      'A route refers to something that is missing.',
      resource + ' has had an unresolved reference, such as a backend,' + ofParent + ' for 10 minutes.',
    ),
    pack.alert(
      'GatewayApiRouteUnhandled',
      'warning',
      '15m',
      'max by (%(by)s) (%(wanted)s)\n  unless\nmax by (%(by)s) (%(handled)s)'
      % { by: object, wanted: routes('parent_info'), handled: routes('status_parent_info') },
      'No controller handles a route.',
      resource + ' has had no status for 15 minutes: none of its parents exists, or no controller serves them.',
    ),
    pack.alert(
      'GatewayApiBackendTlsPolicyInvalid',
      'warning',
      '10m',
      isFalse(
        object + ', controller_name, ancestor_kind, ancestor_namespace, ancestor_name',
        '{__name__=~"gatewayapi_backendtlspolicy_status_ancestor_(accepted|resolved_refs)"}'
      ),
      'A BackendTLSPolicy is not in force.',
      resource + ' has not been accepted, or has had an unresolved reference, for 10 minutes.',
    ),
  ]),

  dashboard: pack.dashboard(
    'State of gateways, their listeners and the routes that are attached to them.',
    '{__name__=~"gatewayapi_.+_created"}',
    [{ name: 'namespace', label: 'namespace', title: 'Namespace' }],
    [
      g.number('Gateways', 'count(gatewayapi_gateway_info{%s})' % here),
      g.number('Gateways not programmed', 'count(gatewayapi_gateway_status{%s,type="Programmed"} == 0) or vector(0)' % here, thresholds=[1, 1]),
      g.number('Listeners not programmed', 'count(%s == 0) or vector(0)' % listeners('status_listener_programmed', ',' + here), thresholds=[1, 10]),
      g.number('Routes', 'count(%s)' % routes('created', ',' + here)),
      g.number('Routes not accepted', 'count(%s == 0) or vector(0)' % routes('status_parent_accepted', ',' + here), thresholds=[1, 10], description='Pairs of a route and a parent that does not accept it.'),
      g.number('Routes unresolved', 'count(%s == 0) or vector(0)' % routes('status_parent_resolved_refs', ',' + here), thresholds=[1, 10], description='Pairs of a route and a parent at which a reference, such as a backend, is unresolved.'),
      g.plot('Routes by kind', [g.query('count by (customresource_kind) (%s)' % routes('created', ',' + here), '{{customresource_kind}}')], stacked=true),
      g.plot('Attached routes by listener', [g.query('max by (namespace, name, listener_name) (%s)' % listeners('status_listener_attached_routes', ',' + here), '{{namespace}}/{{name}} {{listener_name}}')]),
      g.table('Gateway classes', 'max by (name, controller_name) (gatewayapi_gatewayclass_info{cluster=~"$cluster"}) * on (name) group_left max by (name) (gatewayapi_gatewayclass_status{cluster=~"$cluster",type="Accepted"})', description='1 is accepted.'),
      g.table('Gateways', 'max by (namespace, name, gatewayclass_name) (gatewayapi_gateway_info{%(here)s}) * on (namespace, name) group_left max by (namespace, name) (gatewayapi_gateway_status{%(here)s,type="Programmed"})' % { here: here }, description='1 is programmed.'),
      g.table('Listeners', 'max by (customresource_kind, namespace, name, listener_name, port, protocol, hostname, tls_mode) (%s)' % listeners('listener_info', ',' + here), width=24),
      g.table('Routes at their parents', 'min by (customresource_kind, namespace, name, parent_kind, parent_namespace, parent_name, parent_section_name, controller_name) (%s)' % routes('status_parent_(accepted|resolved_refs)', ',' + here), width=24, description='1 is accepted, with all references resolved.'),
      g.table('Hostnames', 'max by (hostname, customresource_kind, namespace, name) (%s)' % routes('hostname_info', ',' + here)),
      g.table('Addresses', 'max by (namespace, name, type, value) (gatewayapi_gateway_status_address_info{%s})' % here),
    ],
  ),
}
