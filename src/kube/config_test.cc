#include "kube/config.h"

#include "kube/credentials_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace divisi::kube {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

// A file with one context, "c", of the cluster "k" and the user "u".
std::string kubeconfig(const std::string& cluster, const std::string& user = "{}") {
  return "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
         "clusters: [{name: k, cluster: " +
         cluster +
         "}]\n"
         "users: [{name: u, user: " +
         user +
         "}]\n"
         "contexts: [{name: c, context: {cluster: k, user: u}}]\n";
}

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    options_.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::nullopt : std::optional(found->second);
    };
    options_.home = folder_ / "home";
    options_.service_account = folder_ / "account";
  }

  static Config good(Result<Config> config) {
    if (!config) ADD_FAILURE() << config.error().message();
    return config.value_or(Config());
  }
  // Of one file that is named.
  Result<Config> load(const std::string& text) {
    options_.kubeconfig = folder_.write("config", text);
    return load_config(options_);
  }
  std::string refusal(const std::string& text) {
    const auto config = load(text);
    return config ? "accepted" : config.error().message();
  }
  std::string user_refusal(const std::string& user) {
    return refusal(kubeconfig("{server: 'https://a'}", user));
  }
  std::string cluster_refusal(const std::string& cluster) { return refusal(kubeconfig(cluster)); }

  std::string file() const { return folder_ / "config"; }
  std::string the_user() const { return "user 'u' of " + file(); }
  std::string the_cluster() const { return "cluster 'k' of " + file(); }

  void enter_pod() {
    variables_["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
    variables_["KUBERNETES_SERVICE_PORT"] = "443";
    folder_.write("account/token", "t");
    folder_.write("account/ca.crt", "CA");
    folder_.write("account/namespace", "jobs\n");
  }

  TempFolder folder_;
  std::map<std::string, std::string> variables_;
  ConfigOptions options_;
};

TEST_F(ConfigTest, C39_ReadsAllOfACluster) {
  const auto config = load(R"(
apiVersion: v1
kind: Config
current-context: c
preferences: {colors: true}
clusters:
- name: k
  cluster:
    server: https://10.0.0.1:6443/base
    tls-server-name: api.example.org
    proxy-url: http://proxy:3128
    certificate-authority-data: |
      Q0
      E=
    unknown: 1
users:
- name: u
  user: {client-certificate: certs/u.crt, client-key: /abs/u.key, as: bob, as-uid: "7",
         as-groups: [dev], as-user-extra: {reason: [a, b]}}
contexts:
- name: c
  context: {cluster: k, user: u, namespace: jobs}
)");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->server, "https://10.0.0.1:6443/base");
  EXPECT_EQ(config->tls_server_name, "api.example.org");
  EXPECT_EQ(config->proxy_url, "http://proxy:3128");
  EXPECT_EQ(config->ca_pem, "CA");
  EXPECT_EQ(config->default_namespace, "jobs");
  EXPECT_EQ(config->context, "c");
  EXPECT_EQ(config->described_by, "context 'c' of " + file());
  EXPECT_FALSE(config->insecure_skip_tls_verify);
  EXPECT_EQ(config->auth.client_certificate_file, folder_ / "certs/u.crt");
  EXPECT_EQ(config->auth.client_key_file, "/abs/u.key");
  EXPECT_EQ(config->auth.impersonate.user, "bob");
  EXPECT_EQ(config->auth.impersonate.uid, "7");
  EXPECT_THAT(config->auth.impersonate.groups, ElementsAre("dev"));
  EXPECT_THAT(config->auth.impersonate.extra, ElementsAre(Pair("reason", ElementsAre("a", "b"))));
}

TEST_F(ConfigTest, JsonIsYamlToo) {
  const auto config = load(R"({"current-context": "c",
    "clusters": [{"name": "k", "cluster": {"server": "http://a:1", "certificate-authority": null}}],
    "users": null, "contexts": [{"name": "c", "context": {"cluster": "k"}}]})");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->server, "http://a:1");
  EXPECT_EQ(config->default_namespace, "default");
}

TEST_F(ConfigTest, C39_RelativePathsBeginAtTheFileThatNamesThem) {
  const auto config = load(kubeconfig("{server: 'https://a', certificate-authority: ../ca.crt}",
                                      "{tokenFile: tokens/t}"));
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->ca_file,
            std::filesystem::path(folder_.path()).parent_path().string() + "/ca.crt");
  EXPECT_EQ(config->auth.token_file, folder_ / "tokens/t");
}

TEST_F(ConfigTest, DataWinsOverFiles) {
  const auto config = load(kubeconfig(
      "{server: 'https://a', certificate-authority: ca, certificate-authority-data: Q0E=}",
      "{client-certificate: c, client-certificate-data: Qw==, client-key: k, client-key-data: "
      "Sw==}"));
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->ca_pem, "CA");
  EXPECT_EQ(config->ca_file, "");
  EXPECT_EQ(config->auth.client_certificate_pem, "C");
  EXPECT_EQ(config->auth.client_certificate_file, "");
  EXPECT_EQ(config->auth.client_key_pem, "K");
  EXPECT_EQ(config->auth.client_key_file, "");
}

TEST_F(ConfigTest, AServerWithoutSchemeIsHttpsWhereCertificatesArePrepared) {
  EXPECT_EQ(good(load(kubeconfig("{server: 'a:8080'}"))).server, "http://a:8080");
  EXPECT_EQ(good(load(kubeconfig("{server: 'a:6443', insecure-skip-tls-verify: true}"))).server,
            "https://a:6443");
}

TEST_F(ConfigTest, OptionsWinOverTheContext) {
  const std::string text = R"(
current-context: one
clusters: [{name: a, cluster: {server: "http://a"}}, {name: b, cluster: {server: "http://b"}}]
users: [{name: ann, user: {token: tx}}, {name: bob, user: {token: ty}}]
contexts: [{name: one, context: {cluster: a, user: ann, namespace: n1}},
           {name: two, context: {cluster: b, user: bob}}]
)";
  EXPECT_EQ(good(load(text)).server, "http://a");
  options_.context = "two";
  EXPECT_EQ(good(load(text)).server, "http://b");
  EXPECT_EQ(good(load(text)).auth.token, "ty");
  options_.cluster = "a";
  options_.user = "ann";
  options_.default_namespace = "n9";
  const auto config = load(text);
  EXPECT_EQ(config->server, "http://a");
  EXPECT_EQ(config->auth.token, "tx");
  EXPECT_EQ(config->default_namespace, "n9");
}

TEST_F(ConfigTest, C40_ACompletePluginIsTaken) {
  const auto config = load(R"(
current-context: c
clusters:
- name: k
  cluster:
    server: https://a
    extensions:
    - {name: other, extension: 5}
    - {name: client.authentication.k8s.io/exec, extension: {audience: x}}
users:
- name: u
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ./bin/login
      args: [--now, a b]
      env: [{name: COLOUR, value: red}]
      installHint: see example.org
      provideClusterInfo: true
      interactiveMode: Never
contexts: [{name: c, context: {cluster: k, user: u}}]
)");
  ASSERT_TRUE(config) << config.error().message();
  const ExecPlugin plugin = config->auth.exec.value_or(ExecPlugin());
  EXPECT_EQ(plugin.command, folder_ / "bin/login");
  EXPECT_THAT(plugin.arguments, ElementsAre("--now", "a b"));
  EXPECT_THAT(plugin.environment, ElementsAre(Pair("COLOUR", "red")));
  EXPECT_EQ(plugin.install_hint, "see example.org");
  EXPECT_TRUE(plugin.provide_cluster_info);
  EXPECT_EQ(plugin.interactive, ExecPlugin::Interactive::kNever);
  EXPECT_EQ(plugin.cluster_config, json::Value(json::Object{{"audience", "x"}}));
}

TEST_F(ConfigTest, APluginsBareNameIsLeftToPathAndBetaMayAskIfItCan) {
  const auto config = load(
      kubeconfig("{server: 'https://a'}",
                 "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: login}}"));
  ASSERT_TRUE(config) << config.error().message();
  const ExecPlugin plugin = config->auth.exec.value_or(ExecPlugin());
  EXPECT_EQ(plugin.command, "login");
  EXPECT_EQ(plugin.interactive, ExecPlugin::Interactive::kIfAvailable);
}

TEST_F(ConfigTest, IncompletePluginsAreRefused) {
  const std::string v1 = "apiVersion: client.authentication.k8s.io/v1";
  EXPECT_EQ(user_refusal("{exec: {" + v1 + "}}"), the_user() + ": exec has no command");
  EXPECT_EQ(user_refusal("{exec: {command: a}}"),
            the_user() +
                ": exec: apiVersion must be client.authentication.k8s.io/v1 or "
                "client.authentication.k8s.io/v1beta1");
  EXPECT_THAT(
      user_refusal("{exec: {command: a, apiVersion: client.authentication.k8s.io/v1alpha1}}"),
      HasSubstr("v1alpha1 is no more"));
  EXPECT_THAT(user_refusal("{exec: {command: a, " + v1 + "}}"),
              HasSubstr("interactiveMode must be"));
  EXPECT_THAT(user_refusal("{exec: {command: a, " + v1 + ", interactiveMode: Perhaps}}"),
              HasSubstr("interactiveMode must be"));
  EXPECT_THAT(
      user_refusal("{exec: {command: a, interactiveMode: Never, env: [{value: x}], " + v1 + "}}"),
      HasSubstr("without a usable name"));
}

TEST_F(ConfigTest, APluginIsNotUsedWhereSomethingIsAtHand) {
  const std::string exec = "exec: {command: a, apiVersion: client.authentication.k8s.io/v1beta1}}";
  for (const std::string at_hand : {"token: t", "tokenFile: t", "username: u, password: p",
                                    "client-certificate: c, client-key: k"}) {
    const auto config =
        load(kubeconfig("{server: 'https://a'}", fmt::format("{{{}, {}", at_hand, exec)));
    ASSERT_TRUE(config) << config.error().message();
    EXPECT_FALSE(config->auth.exec) << at_hand;
  }
}

TEST_F(ConfigTest, ContradictionsOfAUserAreRefusedWithoutShowingSecrets) {
  EXPECT_EQ(user_refusal("{token: s3cret, username: ann, password: p}"),
            the_user() + " has both a token and a username; remove one");
  EXPECT_EQ(user_refusal("{tokenFile: f, username: ann, password: p}"),
            the_user() + " has both a token and a username; remove one");
  EXPECT_EQ(user_refusal("{password: s3cret}"), the_user() + " has a password, but no username");
  EXPECT_EQ(user_refusal("{username: 'a:b'}"), the_user() + ": a username cannot have a colon");
  EXPECT_EQ(user_refusal("{client-certificate: c}"),
            the_user() + " has a client-certificate without a client-key");
  EXPECT_EQ(user_refusal("{client-key-data: Qw==}"),
            the_user() + " has a client-key without a client-certificate");
  EXPECT_EQ(user_refusal("{as-groups: [a]}"),
            the_user() + ": as-uid, as-groups and as-user-extra need 'as'");
  EXPECT_THAT(user_refusal("{auth-provider: {name: gcp}}"),
              AllOf(StartsWith(the_user() + ": the auth-provider 'gcp' is no longer part"),
                    HasSubstr("gke-gcloud-auth-plugin")));
}

TEST_F(ConfigTest, ContradictionsOfAClusterAreRefused) {
  EXPECT_EQ(cluster_refusal("{}"), the_cluster() + " has no server");
  EXPECT_THAT(cluster_refusal("{server: 'https://a', insecure-skip-tls-verify: true, "
                              "certificate-authority: ca}"),
              StartsWith(the_cluster() + ": insecure-skip-tls-verify and a certificate-authority"));
  EXPECT_THAT(cluster_refusal("{server: 'ftp://a'}"), StartsWith(the_cluster() + ": server: "));
  EXPECT_THAT(cluster_refusal("{server: 'https://a:99999'}"),
              StartsWith(the_cluster() + ": server: "));
  EXPECT_EQ(cluster_refusal("{server: 'https://a', proxy-url: 'socks5://u:s3cret@p'}"),
            the_cluster() + ": proxy-url must be http://host:port");
  EXPECT_EQ(cluster_refusal("{server: 'https://a', proxy-url: 'https://p'}"),
            the_cluster() + ": proxy-url must be http://host:port");
}

TEST_F(ConfigTest, FieldsOfTheWrongKindAreNamedAndNotShown) {
  EXPECT_EQ(user_refusal("{token: 1234567}"),
            file() +
                ": user 'u': token must be text (in quotes, if it looks like something else), "
                "not number");
  EXPECT_EQ(user_refusal("[]"), file() + ": user 'u': must be a mapping, not array");
  EXPECT_EQ(user_refusal("{as-groups: a}"),
            file() + ": user 'u': as-groups must be a list, not string");
  EXPECT_EQ(user_refusal("{exec: {env: {a: b}}}"),
            file() + ": user 'u': exec: env must be a list, not object");
  EXPECT_EQ(user_refusal("{client-key-data: '***'}"),
            file() + ": user 'u': client-key-data is not base64");
  EXPECT_EQ(user_refusal("{token: \"a\\0b\"}"), file() + ": user 'u': token has a zero byte");
  EXPECT_EQ(cluster_refusal("{server: 'https://a', insecure-skip-tls-verify: 'true'}"),
            file() + ": cluster 'k': insecure-skip-tls-verify must be true or false, not string");
  EXPECT_EQ(refusal("clusters: {}"), file() + ": clusters must be a list, not object");
  EXPECT_EQ(refusal("clusters: [{cluster: {}}]"), file() + ": clusters: an entry has no name");
  EXPECT_EQ(refusal("users: [{name: u}, {name: u}]"), file() + ": user 'u': is there twice");
  EXPECT_EQ(refusal("kind: Pod\napiVersion: v1"),
            file() + ": it is a Pod of v1, not a Config of v1");
  EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"), file() + ": it has more than one document");
}

TEST_F(ConfigTest, NamesThatAreMissingComeWithThoseThatExist) {
  const std::string entries =
      "clusters: [{name: k1}, {name: k2}]\nusers: [{name: u1}]\n"
      "contexts: [{name: a, context: {cluster: nope}}, {name: b, context: {cluster: k1, user: "
      "nobody}},"
      " {name: d, context: {user: u1}}]\n";
  EXPECT_EQ(refusal(entries),
            "the kubeconfig names no current-context; choose a context: there are "
            "'a', 'b', 'd'");
  EXPECT_EQ(refusal(entries + "current-context: x"),
            "current-context names the context 'x', which the kubeconfig does not have; there are "
            "'a', 'b', 'd'");
  EXPECT_EQ(
      refusal(entries + "current-context: a"),
      "context 'a' of " + file() +
          " names the cluster 'nope', which the kubeconfig does not have; there are 'k1', 'k2'");
  EXPECT_EQ(refusal(entries + "current-context: d"),
            "context 'd' of " + file() + " names no cluster");
  options_.context = "b";
  options_.user = "no";
  EXPECT_EQ(refusal(kubeconfig("{server: 'http://a'}")),
            "the option names the context 'b', which the kubeconfig does not have; there is 'c'");
  options_.context = "c";
  EXPECT_EQ(refusal(kubeconfig("{server: 'http://a'}")),
            "context 'c' of " + file() +
                " names the user 'no', which the kubeconfig does not have; there is 'u'");
}

TEST_F(ConfigTest, TextThatIsNoYamlIsNamedWithItsLine) {
  EXPECT_THAT(refusal("clusters:\n- name: [\n"),
              AllOf(StartsWith(file() + ": "), HasSubstr("line ")));
}

TEST_F(ConfigTest, TheProxyOfTheEnvironmentIsForClustersThatNameNone) {
  variables_["HTTPS_PROXY"] = "http://proxy:3128";
  variables_["NO_PROXY"] = ".internal";
  EXPECT_EQ(good(load(kubeconfig("{server: 'https://a'}"))).environment_proxy, "http://proxy:3128");
  EXPECT_EQ(good(load(kubeconfig("{server: 'https://a.internal'}"))).environment_proxy, "");
  const Config own = good(load(kubeconfig("{server: 'https://a', proxy-url: 'http://own:1'}")));
  EXPECT_EQ(own.environment_proxy, "");
  EXPECT_EQ(own.proxy_url, "http://own:1");

  options_.kubeconfig.clear();
  enter_pod();
  EXPECT_EQ(good(load_config(options_)).environment_proxy, "http://proxy:3128");
}

TEST_F(ConfigTest, ANamedFileMustBeThereAndIsTheOnlyOne) {
  variables_["KUBECONFIG"] = folder_.write("other", kubeconfig("{server: 'http://other'}"));
  EXPECT_EQ(good(load(kubeconfig("{server: 'http://a'}"))).server, "http://a");
  options_.kubeconfig = folder_ / "missing";
  const auto missing = load_config(options_);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message(),
            "reading the kubeconfig " + (folder_ / "missing") + ": No such file or directory");
}

TEST_F(ConfigTest, C39_FilesOfKubeconfigAreMergedAndTheFirstWins) {
  variables_["KUBECONFIG"] =
      (folder_ / "missing") + "::" +
      folder_.write("one/config",
                    "clusters: [{name: k, cluster: {server: 'http://one', "
                    "certificate-authority: ca}}]\n") +
      ":" +
      folder_.write("two/config",
                    "current-context: c\n"
                    "clusters: [{name: k, cluster: {server: 'http://two'}}]\n"
                    "users: [{name: u, user: {tokenFile: t}}]\n"
                    "contexts: [{name: c, context: {cluster: k, user: u}}]\n") +
      ":" + folder_.write("three/config", "current-context: other\n");
  const auto config = load_config(options_);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->server, "http://one");
  EXPECT_EQ(config->ca_file, folder_ / "one/ca");
  EXPECT_EQ(config->auth.token_file, folder_ / "two/t");
}

TEST_F(ConfigTest, ABrokenFileOfKubeconfigIsAnErrorAlsoWhenOthersAreGood) {
  variables_["KUBECONFIG"] = folder_.write("good", kubeconfig("{server: 'http://a'}")) + ":" +
                             folder_.write("bad", "clusters: 7\n");
  const auto config = load_config(options_);
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message(), StartsWith(folder_ / "bad"));
}

TEST_F(ConfigTest, TheHomeFolderComesAfterKubeconfigAndBeforeThePod) {
  enter_pod();
  folder_.write("home/.kube/config", kubeconfig("{server: 'http://home'}"));
  EXPECT_EQ(good(load_config(options_)).server, "http://home");
  variables_["KUBECONFIG"] = folder_ / "missing";
  EXPECT_EQ(good(load_config(options_)).server, "https://10.0.0.1:443");
}

TEST_F(ConfigTest, C37_APodUsesItsServiceAccount) {
  enter_pod();
  const auto config = load_config(options_);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->server, "https://10.0.0.1:443");
  EXPECT_EQ(config->auth.token_file, folder_ / "account/token");
  EXPECT_EQ(config->ca_file, folder_ / "account/ca.crt");
  EXPECT_EQ(config->default_namespace, "jobs");
  EXPECT_EQ(config->context, "");

  variables_["KUBERNETES_SERVICE_HOST"] = "fd00::1";
  options_.default_namespace = "mine";
  EXPECT_EQ(good(load_config(options_)).server, "https://[fd00::1]:443");
  EXPECT_EQ(good(load_config(options_)).default_namespace, "mine");

  variables_["KUBERNETES_SERVICE_PORT"] = "x";
  EXPECT_THAT(load_config(options_).error().message(),
              StartsWith("KUBERNETES_SERVICE_HOST and _PORT"));
}

TEST_F(ConfigTest, AnEmptyKubeconfigIsNoneAtAll) {
  enter_pod();
  folder_.write("home/.kube/config", "");
  EXPECT_EQ(good(load_config(options_)).described_by, "the pod's service account");
}

TEST_F(ConfigTest, AContextThatWasAskedForIsNotReplacedByThePod) {
  enter_pod();
  options_.context = "staging";
  const auto config = load_config(options_);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), Code::kNotFound);
}

TEST_F(ConfigTest, NothingAtAllSaysWhereWasLookedAndWhatToDo) {
  const auto config = load_config(options_);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message(),
            "no Kubernetes cluster is configured: there is nothing in " +
                (folder_ / "home/.kube/config") +
                ", and this is no pod with a service account; name a file with --kubeconfig or "
                "KUBECONFIG");
}

TEST_F(ConfigTest, NamespacesAreDnsLabels) {
  options_.default_namespace = "No/Way";
  EXPECT_THAT(refusal(kubeconfig("{server: 'http://a'}")), HasSubstr("a namespace's name has"));
}

TEST_F(ConfigTest, HugeFilesAreRefused) {
  EXPECT_THAT(refusal("# " + std::string(9 << 20, 'x')), HasSubstr("it is longer than"));
}

}  // namespace
}  // namespace divisi::kube
