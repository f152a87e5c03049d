package kafka

import (
	"context"
	"fmt"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
)

// newMSK signs each login with the credentials of that time, which the chain of the
// environment, the shared files, a web identity and the instance's role renews.
func newMSK(c *AWSConfig) sasl.Mechanism {
	var mu sync.Mutex
	var chain awssdk.CredentialsProvider
	provider := func(ctx context.Context) (awssdk.CredentialsProvider, error) {
		mu.Lock()
		defer mu.Unlock()
		if chain != nil {
			return chain, nil
		}
		made, err := c.credentials(ctx)
		if err == nil {
			chain = made
		}
		return made, err
	}
	return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
		const help = "give credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, sasl.aws.profile, a web identity or an instance role"
		from, err := provider(ctx)
		if err != nil {
			return aws.Auth{}, &loginError{err: fmt.Errorf("read the AWS settings: %w", err), help: help, final: true}
		}
		got, err := from.Retrieve(ctx)
		if err != nil {
			return aws.Auth{}, &loginError{err: fmt.Errorf("get AWS credentials: %w", err), help: help}
		}
		return aws.Auth{AccessKey: got.AccessKeyID, SecretKey: got.SecretAccessKey, SessionToken: got.SessionToken, UserAgent: "sluice"}, nil
	})
}

func (c *AWSConfig) credentials(ctx context.Context) (awssdk.CredentialsProvider, error) {
	var opts []func(*awsconfig.LoadOptions) error
	if c.Profile != "" {
		opts = append(opts, awsconfig.WithSharedConfigProfile(c.Profile))
	}
	if c.Region != "" {
		opts = append(opts, awsconfig.WithRegion(c.Region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, err
	}
	if c.RoleARN == "" {
		return cfg.Credentials, nil
	}
	return awssdk.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), c.RoleARN)), nil
}
