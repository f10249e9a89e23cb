// As much of Grafana's dashboard format as the dashboards here need. It knows nothing of kstatd's metrics.
{
  local datasource = { type: 'prometheus', uid: '${datasource}' },

  // One query of a panel; the legend is Grafana's template of it.
  local target(index, query) = {
    refId: std.char(std.codepoint('A') + index),
    datasource: datasource,
    expr: query.expr,
    legendFormat: std.get(query, 'legend', ''),
    [if std.objectHas(query, 'instant') then 'instant']: query.instant,
    [if std.objectHas(query, 'instant') then 'range']: !query.instant,
    [if std.objectHas(query, 'format') then 'format']: query.format,
  },
  local targets(queries) = std.mapWithIndex(target, queries),

  query(expr, legend=''):: { expr: expr, legend: legend },

  local panel(type, title, queries, unit, description, width, height) = {
    type: type,
    title: title,
    description: description,
    datasource: datasource,
    targets: targets(queries),
    fieldConfig: { defaults: { unit: unit }, overrides: [] },
    gridPos: { w: width, h: height },
  },

  // Lines over time.
  plot(title, queries, unit='short', description='', width=12, height=8, stacked=false)::
    panel('timeseries', title, queries, unit, description, width, height) + {
      fieldConfig+: {
        defaults+: {
          min: 0,
          custom: {
            lineWidth: 1,
            fillOpacity: if stacked then 40 else 10,
            showPoints: 'never',
            stacking: { mode: if stacked then 'normal' else 'none' },
          },
        },
      },
      options: {
        legend: { displayMode: 'table', placement: 'right', calcs: ['lastNotNull', 'max'], sortBy: 'Max', sortDesc: true },
        tooltip: { mode: 'multi', sort: 'desc' },
      },
    },

  // One number, green until it reaches the first threshold.
  number(title, expr, unit='short', description='', thresholds=[], lowIsBad=false)::
    panel('stat', title, [{ expr: expr, instant: true }], unit, description, 4, 4) + {
      fieldConfig+: {
        defaults+: {
          color: { mode: 'thresholds' },
          thresholds: {
            mode: 'absolute',
            steps: [{ color: if lowIsBad then 'red' else 'green', value: null }] + [
              { color: if lowIsBad then 'green' else (['orange', 'red'][index]), value: thresholds[index] }
              for index in std.range(0, std.length(thresholds) - 1)
            ],
          },
        },
      },
      options: { colorMode: 'value', graphMode: 'area', reduceOptions: { calcs: ['lastNotNull'] } },
    },

  // Rows of one instant query, the largest first.
  table(title, expr, unit='short', description='', width=12, height=10)::
    panel('table', title, [{ expr: expr, instant: true, format: 'table' }], unit, description, width, height) + {
      transformations: [{ id: 'organize', options: { excludeByName: { Time: true } } }],
      options: { sortBy: [{ displayName: 'Value', desc: true }] },
    },

  row(title):: { type: 'row', title: title, collapsed: false, panels: [], gridPos: { w: 24, h: 1 } },

  // A variable whose values are those of a label.
  labelVariable(name, label, metric, title=name, default={}):: {
    name: name,
    label: title,
    type: 'query',
    datasource: datasource,
    query: { query: 'label_values(%s, %s)' % [metric, label], refId: name },
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: '.+',
    current: { selected: true, text: 'All', value: '$__all' },
  } + default,

  // The same, of the series of an expression, which need not be one selector. All is all of its values, not every value.
  resultVariable(name, label, expr, title=name):: self.labelVariable(name, label, '', title) {
    query: { query: 'query_result(count by (%s) (%s))' % [label, expr], refId: name },
    regex: '/%s="([^"]+)"/' % label,
    allValue: null,
  },

  local datasourceVariable = { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus', refresh: 1 },

  // Puts panels from left to right, beginning a new line where one has no room.
  local layout(panels) = std.foldl(
    function(sum, panel)
      local fits = sum.x + panel.gridPos.w <= 24;
      local x = if fits then sum.x else 0;
      local y = if fits then sum.y else sum.y + sum.height;
      {
        x: x + panel.gridPos.w,
        y: y,
        height: if fits then std.max(sum.height, panel.gridPos.h) else panel.gridPos.h,
        panels: sum.panels + [panel { id: std.length(sum.panels) + 1, gridPos+: { x: x, y: y } }],
      },
    panels,
    { x: 0, y: 0, height: 0, panels: [] }
  ).panels,

  dashboard(config, name, title, description, variables, panels):: {
    uid: 'kstatd-' + name,
    title: 'kstatd / ' + title,
    description: description,
    tags: config.dashboardTags,
    schemaVersion: 39,
    version: 1,
    editable: true,
    timezone: 'browser',
    time: { from: 'now-3h', to: 'now' },
    refresh: '30s',
    links: [{ type: 'dashboards', title: 'kstatd', tags: config.dashboardTags, asDropdown: true, includeVars: true, keepTime: true }],
    annotations: { list: [] },
    templating: { list: [datasourceVariable] + variables },
    panels: layout(panels),
  },
}
