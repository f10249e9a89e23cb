// System processes and pressure of nodes, from `kstatd node`.
local g = import '../grafana.libsonnet';
local common = import 'common.libsonnet';
local here = common.here;

// The rate of a counter of processes.
local rate(counter) = 'sum by (instance, name) (rate(kstatd_node_process_%s_total{%s}[5m]))' % [counter, here];
local plot(title, counter, unit, description='') =
  g.plot(title, [g.query(rate(counter), '{{instance}} {{name}}')], unit=unit, description=description);
// The share of time in which tasks waited for each resource.
local waiting(title, tasks) =
  g.plot(
    title,
    [g.query('rate(kstatd_node_pressure_%s_seconds_total{%s}[5m])' % [tasks, here], '{{instance}} {{resource}}')],
    unit='percentunit',
  );

function(config) g.dashboard(
  config,
  'node',
  'Node',
  'Resource usage of the system processes of nodes (kubelet, container runtime, kube-proxy, CNI), and pressure.',
  common.variables(config),
  [
    g.row('Pressure'),
    waiting('At least one task waits', 'some'),
    waiting('All tasks wait', 'full'),
    g.row('Processes'),
    plot('CPU', 'cpu_seconds', 'percentunit', 'Of one core.'),
    g.plot('Memory', [g.query('kstatd_node_process_resident_memory_bytes{%s}' % here, '{{instance}} {{name}}')], unit='bytes'),
    plot('Reads from disks', 'read_bytes', 'Bps', 'Absent where kstatd lacks CAP_SYS_PTRACE.'),
    plot('Writes to disks', 'written_bytes', 'Bps', 'Absent where kstatd lacks CAP_SYS_PTRACE.'),
    plot('Context switches', 'context_switches', 'ops'),
    plot('Wake-ups', 'wakeups', 'ops', 'Voluntary context switches; each was followed by a wake-up.'),
    g.plot('Threads', [g.query('kstatd_node_process_threads{%s}' % here, '{{instance}} {{name}}')]),
    g.plot('Processes', [g.query('kstatd_node_processes{%s}' % here, '{{instance}} {{name}}')]),
    g.table(
      'CPU now, as a multiple of last week',
      'topk(20, %s / on (name) group_left () (avg by (name) (rate(kstatd_node_process_cpu_seconds_total{%s}[30m] offset 1w)) or avg by (name) (%s)))'
      % [rate('cpu_seconds'), here, rate('cpu_seconds')],
      description="Last week's mean over all nodes; 1 where there is none yet.",
    ),
  ],
)
