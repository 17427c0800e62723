// Loaded before the suite of node-redis: tests that need a cluster, sentinels, TLS or a proxy are skipped, since each starts its own
// servers in Docker.
const { default: TestUtils } = require('@redis/test-utils');

for (const name of ['testWithCluster', 'testWithClientSentinel', 'testWithTlsClient', 'testWithProxiedCluster', 'testWithProxiedClient',
  'testWithRECluster']) {
  TestUtils.prototype[name] = (title) => it.skip(title);
}
