import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.transport.Netty4Plugin;

/** One node with its HTTP interface, started from jars alone. Arguments: KEY=VALUE settings. */
class EmbeddedNode extends org.opensearch.node.Node {
    EmbeddedNode(Environment env) {
        super(env, List.of(Netty4Plugin.class), false);
    }

    public static void main(String[] args) throws Exception {
        Settings.Builder settings = Settings.builder();
        for (String arg : args) {
            String[] kv = arg.split("=", 2);
            settings.put(kv[0], kv[1]);
        }
        Environment env = InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), null, () -> "node");
        EmbeddedNode node = new EmbeddedNode(env);
        node.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception e) {
                e.printStackTrace();
            }
        }));
        new CountDownLatch(1).await();
    }
}
